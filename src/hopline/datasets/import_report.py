"""What an import left out or had to decide, for ``index.json`` and for the person who looks on."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["ImportReport", "UnknownRelation"]

_NAMED: Final = 5
"""Relations that a warning names; the index has them all."""

Count = Annotated[int, Field(ge=0)]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class UnknownRelation(_Frozen):
    """A relation that no training item has, and what was left out because of it."""

    relation: str
    split: str
    count: Annotated[int, Field(ge=1)]
    """Triples or examples of this split that were left out."""
    first: str
    """File and line of the first."""


class ImportReport(_Frozen):
    """What was read from a source, and what of it is in no split."""

    items: dict[str, int] = {}
    """File -> triples or examples in it."""
    headers: tuple[str, ...] = ()
    """Files of triples whose first line was taken for a header."""
    unknown_relations: tuple[UnknownRelation, ...] = ()
    """Relations of valid, calibration or test that training does not have."""
    crossing_triples: Count = 0
    """Triples between entities of different splits, left out where splits share no entity."""
    shared_entities: Count | None = None
    """Entities in the graphs of two splits; null where splits may share them."""

    @property
    def unknown_items(self) -> int:
        """Triples or examples left out because of an unknown relation."""
        return sum(unknown.count for unknown in self.unknown_relations)

    def warnings(self) -> tuple[str, ...]:
        """What a person should hear of, a line each."""
        said = []
        if self.unknown_relations:
            names = sorted({unknown.relation for unknown in self.unknown_relations})
            shown = ", ".join(f"'{name}'" for name in names[:_NAMED])
            more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
            splits = ", ".join(sorted({unknown.split for unknown in self.unknown_relations}))
            said.append(
                f"{self.unknown_items} of {splits} left out: relations that training does not have: {shown}{more} "
                f"(first: {self.unknown_relations[0].first})"
            )
        if self.crossing_triples:
            said.append(f"{self.crossing_triples} triples left out: their entities are in different splits")
        return tuple(said)
