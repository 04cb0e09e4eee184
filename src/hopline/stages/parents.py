"""The parent of a run: the candidate or training state that ``training.init_from`` names."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final, Literal

from hopline.errors import DataError, HoplineError
from hopline.model import GraphModel
from hopline.storage import Store, open_object, parse_json
from hopline.storage.folders import FolderIndex
from hopline.training import Checkpoints, GraphTrainer, fetch_candidate

__all__ = ["Parent", "open_parent"]

_STEP: Final = re.compile(r"(.+)/step-(\d+)")
_NEW_HEAD: Final = "link_mlp."


@dataclass(frozen=True, slots=True)
class Parent:
    """What a run continues.

    Attributes:
        kind: ``candidate``, of which the weights are taken, or ``state``, of which also moments, step and data position are.
        uri, sha256: where it lies, and the digest of its index.
    """

    kind: Literal["candidate", "state"]
    uri: str
    sha256: str
    store: Store
    key: str

    def give_weights(self, model: GraphModel) -> None:
        """Load a candidate's weights into a new model. The link head may be new or gone; of a state nothing happens here.

        Raises:
            DataError: it is of another architecture.
        """
        if self.kind == "state":
            return
        weights = fetch_candidate(self.store, self.key, self.sha256).model.state_dict()
        mine = model.state_dict()
        strange = sorted(name for name in weights.keys() ^ mine.keys() if not name.startswith(_NEW_HEAD))
        differing = [name for name in weights.keys() & mine.keys() if weights[name].shape != mine[name].shape]
        if strange or differing:
            name = (strange or sorted(differing))[0]
            raise DataError(
                f"{self.uri}: its weights do not fit this config: parameter {name} is missing or of another shape; "
                "training.init_from needs a candidate of the same architecture and vocabulary"
            )
        model.load_state_dict({**mine, **{name: value for name, value in weights.items() if name in mine}})

    def give_state(self, trainer: GraphTrainer) -> None:
        """Let a trainer begin where a state stands; of a candidate nothing happens here."""
        if self.kind == "state":
            match = _STEP.fullmatch(self.key)
            assert match is not None
            trainer.load_parent(Checkpoints(self.store, match[1]), int(match[2]), self.sha256)

    def record(self) -> dict[str, Any]:
        """For the run manifest."""
        return {"kind": self.kind, "uri": self.uri, "sha256": self.sha256}


def open_parent(init_from: str) -> Parent:
    """The parent that ``<URI>@sha256:<digest>`` names.

    Raises:
        NotFoundError, IntegrityError: there is nothing there, or something else.
        DataError: it is neither a candidate nor a training state.
    """
    try:
        return _open(init_from)
    except HoplineError as error:
        raise type(error)(f"training.init_from: {error}") from None


def _open(init_from: str) -> Parent:
    uri, _, digest = init_from.rpartition("@sha256:")
    folder, _, name = uri.rstrip("/").rpartition("/")
    store, among = open_object(folder)  # the folder of all states, or of all candidates
    key = f"{among}/{name}"
    index = f"{key}/{FolderIndex.FILE}"
    document = parse_json(store.get_bytes(index, sha256=digest), source=store.uri(index))
    candidate = isinstance(document, dict) and "architecture_version" in document
    if not candidate and not _STEP.fullmatch(key):
        raise DataError(
            f"{uri}: is neither a candidate nor a training state; expected runs/<run>/candidates/step-<n> or "
            "runs/<run>/checkpoints/step-<n>"
        )
    return Parent("candidate" if candidate else "state", store.uri(key), digest, store, key)
