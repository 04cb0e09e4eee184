"""Graphs, queries and paths in words: ``anna —parent→ bob ←owns— carl``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hopline.datasets.vocabulary import Vocabulary
from hopline.graph import AnswerMode, ExampleGraph, Path, Query, step_edge, step_reversed

__all__ = ["Hop", "facts_in_words", "hops_in_words", "node_names", "path_hops", "query_in_words"]


@dataclass(frozen=True, slots=True)
class Hop:
    """One step of evidence: the fact (head, relation, tail), and whether the path crosses it from tail to head."""

    head: str
    relation: str
    tail: str
    backwards: bool = False

    @property
    def triple(self) -> tuple[str, str, str]:
        """The fact as it stands in the graph."""
        return self.head, self.relation, self.tail

    @property
    def start(self) -> str:
        """Where the path comes from."""
        return self.tail if self.backwards else self.head

    @property
    def end(self) -> str:
        """Where the path goes to."""
        return self.head if self.backwards else self.tail

    @property
    def arrow(self) -> str:
        """The relation between start and end, read from left to right."""
        return f"←{self.relation}—" if self.backwards else f"—{self.relation}→"


def node_names(graph: ExampleGraph, vocabulary: Vocabulary) -> tuple[str, ...]:
    """A name for each node: the entity's, ``node 3`` where it is anonymous."""
    names = vocabulary.entities or ()
    entities = graph.node_entities.tolist()
    return tuple(names[e] if 0 <= e < len(names) else f"node {i}" for i, e in enumerate(entities))


def path_hops(path: Path, graph: ExampleGraph, vocabulary: Vocabulary, names: Sequence[str]) -> tuple[Hop, ...]:
    """The steps of a path in order."""
    hops = []
    for step in path:
        source, target = graph.edge_index[:, step_edge(step)].tolist()
        relation = vocabulary.relation_name(int(graph.edge_type_ids[step_edge(step)]))
        hops.append(Hop(names[source], relation, names[target], step_reversed(step)))
    return tuple(hops)


def hops_in_words(hops: Sequence[Hop]) -> str:
    """A path as one line; an empty one is an empty line."""
    return " ".join([hops[0].start, *(f"{hop.arrow} {hop.end}" for hop in hops)]) if hops else ""


def facts_in_words(
    graph: ExampleGraph, vocabulary: Vocabulary, names: Sequence[str], limit: int | None = None
) -> tuple[str, ...]:
    """The facts of a graph, one a line, in the order of its edges; at most ``limit``."""
    lines = []
    for edge in range(graph.num_edges if limit is None else min(limit, graph.num_edges)):
        source, target = graph.edge_index[:, edge].tolist()
        relation = vocabulary.relation_name(int(graph.edge_type_ids[edge]))
        lines.append(f"{names[source]} —{relation}→ {names[target]}")
    return tuple(lines)


def query_in_words(query: Query, vocabulary: Vocabulary, names: Sequence[str]) -> str:
    """The question as one line; ``?`` is what is asked for, ``·`` a node on the way."""
    start = [names[anchor] for anchor in query.anchors]
    if query.answer_mode is AnswerMode.RELATION:
        return f"{start[0]} —?→ {start[1]}"
    if query.answer_mode is AnswerMode.BOOLEAN:
        return f"{_chain(start[0], query.chains[0], vocabulary, start[1])} ?"
    # An anchor for each chain; a query that names fewer starts its last chains at the last anchor.
    anchors = [*start, *start[-1:] * (len(query.chains) - len(start))]
    asked = " and ".join(_chain(a, c, vocabulary, "?") for a, c in zip(anchors, query.chains, strict=False))
    return asked if query.answer_mode is AnswerMode.ENTITIES else f"how many: {asked}"


def _chain(start: str, chain: Sequence[int], vocabulary: Vocabulary, end: str) -> str:
    words = [start]
    for place, relation in enumerate(chain):
        name = vocabulary.relation_name(relation % vocabulary.num_relations)
        words.append(f"←{name}—" if relation >= vocabulary.num_relations else f"—{name}→")
        words.append(end if place == len(chain) - 1 else "·")
    return " ".join(words)
