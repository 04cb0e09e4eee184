"""The lineage of a published version as a graph: what came from what, and what of it is still there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

__all__ = ["LINEAGE_KINDS", "LineageEdge", "LineageGraph", "LineageNode", "NodeKind", "NodeState"]

NodeKind = Literal["source", "dataset", "attempt", "candidate", "choice", "version", "champion"]
NodeState = Literal["there", "recorded", "missing", "altered", "unknown"]
"""``recorded``: known by its digest, and never kept in a store; ``unknown``: there was no root to look in."""

LINEAGE_KINDS: Final[dict[NodeKind, str]] = {
    "source": "Source",
    "dataset": "Dataset",
    "attempt": "Attempts",
    "candidate": "Candidates",
    "choice": "Choice",
    "version": "Version",
    "champion": "Champion",
}
"""Kind -> heading, in the order in which one comes from the other."""


@dataclass(frozen=True, slots=True)
class LineageNode:
    """One thing in the chain.

    Attributes:
        id: unique in the graph, fit for an HTML id.
        title: a few words.
        facts: name -> value, in the order in which they are shown; digests are whole.
        state: whether it is there.
        note: what is wrong with it, if something is.
        chosen: it is the checkpoint that was published.
    """

    id: str
    kind: NodeKind
    title: str
    facts: dict[str, str]
    state: NodeState
    note: str = ""
    chosen: bool = False


@dataclass(frozen=True, slots=True)
class LineageEdge:
    """``target`` came from ``source``."""

    source: str
    target: str


@dataclass(frozen=True, slots=True)
class LineageGraph:
    """Everything.

    Attributes:
        name: of the model.
        version: hash of the manifest.
        uri: of the version's folder.
        root: where the rest was looked for; None = nowhere.
        nodes: by kind, in the order of ``LINEAGE_KINDS``.
    """

    name: str
    version: str
    uri: str
    root: str | None
    nodes: tuple[LineageNode, ...]
    edges: tuple[LineageEdge, ...]

    @property
    def lost(self) -> tuple[LineageNode, ...]:
        """What is missing or altered, or could not be looked for."""
        return tuple(node for node in self.nodes if node.state in ("missing", "altered", "unknown"))

    def of(self, kind: NodeKind) -> tuple[LineageNode, ...]:
        """The nodes of a kind."""
        return tuple(node for node in self.nodes if node.kind == kind)
