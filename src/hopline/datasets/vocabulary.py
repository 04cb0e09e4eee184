"""What ids mean: relations, entities, and the rules that lead from walks to relations."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from hopline.errors import DataError

__all__ = ["Rule", "Vocabulary"]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Rule(_Frozen):
    """If a walk along ``chain`` leads from x to y, then ``relation`` holds from x to y.

    Ids are in ``[0, 2R)``: ``r + R`` is relation ``r`` read backwards.
    """

    relation: int = Field(ge=0)
    chain: tuple[int, ...] = Field(min_length=1)
    confidence: float = Field(ge=0, le=1)


class Vocabulary(_Frozen):
    """Names and rules of a dataset; it goes into ``index.json``, and beside every model as ``vocabulary.json``."""

    relations: tuple[str, ...]
    """Names of the R relations."""
    entities: tuple[str, ...] | None = None
    """Names of the entities where the source names them; the id of an entity is its place."""
    identity: bool = False
    """Entities are known to the model by id, and every one is a possible answer of a link query."""
    rules: tuple[Rule, ...] = ()
    """Composition rules: of the synthetic world, or mined on the training split."""
    rules_compose: bool = False
    """Rules hold without exception, so that the conclusion of one may be a premise of the next."""

    @property
    def num_relations(self) -> int:
        """R, without inverses."""
        return len(self.relations)

    @property
    def num_entities(self) -> int:
        """V, 0 where entities have no identity."""
        return len(self.entities or ()) if self.identity else 0

    def relation_name(self, relation: int) -> str:
        """Readable name of a relation id in ``[0, 2R)``. IndexError outside."""
        if not 0 <= relation < 2 * self.num_relations:
            raise IndexError(f"relation id {relation} is outside [0, {2 * self.num_relations})")
        name = self.relations[relation % self.num_relations]
        return name if relation < self.num_relations else f"{name}⁻¹"

    def to_json(self) -> str:
        """The text of ``vocabulary.json``."""
        return self.model_dump_json()

    @classmethod
    def from_json(cls, data: str | bytes, *, source: str = "vocabulary.json") -> Self:
        """The vocabulary that :meth:`to_json` wrote. DataError, naming ``source``, if it is none."""
        try:
            return cls.model_validate_json(data)
        except ValidationError as error:
            problem = error.errors(include_url=False)[0]
            key = ".".join(str(part) for part in problem["loc"]) or "document"
            raise DataError(f"{source}: no vocabulary: {key}: {problem['msg']}") from None
