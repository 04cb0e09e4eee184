"""From a solved problem to an example: labelled paths, cut evidence with its twin, planted contradictions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from hopline.datasets.adjacency import Adjacency, Walk
from hopline.datasets.draws import Draws
from hopline.datasets.paths import candidate_walks
from hopline.datasets.patterns import Patterns
from hopline.datasets.rulebook import RuleBook
from hopline.datasets.solver import Verdict, derivations, solve
from hopline.graph import AnswerMode, ExampleGraph, Query, QueryKind, ReasoningExample, Status

__all__ = ["Assembler", "sorted_graph"]

_MAX_CUT = 8
"""Most edges that a missing example may lack."""

Fact = tuple[int, int, int]


def sorted_graph(node_entities: Sequence[int], facts: Sequence[Fact]) -> ExampleGraph:
    """A graph of facts ``(head, relation, tail)`` over node indices, sorted by target and otherwise in order."""
    edges = np.array(facts, dtype=np.int64).reshape(-1, 3)
    edges = edges[np.argsort(edges[:, 2], kind="stable")]
    return ExampleGraph(
        node_entities=np.array(node_entities, dtype=np.int64),
        edge_index=np.ascontiguousarray(edges[:, [0, 2]].T),
        edge_type_ids=edges[:, 1].copy(),
    )


@dataclass(frozen=True, slots=True)
class Assembler:
    """Makes examples of problems.

    Attributes:
        rules, patterns: what may be concluded, and what excludes each other.
        max_paths: most candidate paths.
        max_answers: most answers of a set query.
    """

    rules: RuleBook
    patterns: Patterns
    max_paths: int
    max_answers: int
    _recent: list[tuple[ExampleGraph, Adjacency]] = field(default_factory=list, init=False, repr=False)

    def solve(self, graph: ExampleGraph, query: Query, kind: QueryKind) -> Verdict:
        """What follows from the graph."""
        return solve(self._adjacency(graph), query, kind, rules=self.rules, patterns=self.patterns)

    def supported(self, example_id: int, graph: ExampleGraph, query: Query, kind: QueryKind) -> ReasoningExample | None:
        """The supported example, or None if the graph does not answer, or a relation has no path to show."""
        adjacency = self._adjacency(graph)
        verdict = solve(adjacency, query, kind, rules=self.rules, patterns=self.patterns)
        if verdict.status is not Status.SUPPORTED or len(verdict.answers) > self.max_answers:
            return None
        example = self._example(example_id, graph, adjacency, query, kind, verdict)
        return example if example.supporting_paths else None

    def missing(self, twin: ReasoningExample, draws: Draws) -> ReasoningExample | None:
        """The example whose evidence is cut out of a supported one, which becomes its twin. None if that takes too much."""
        graph = self._cut(twin, draws)
        if graph is None:
            return None
        adjacency = self._adjacency(graph)
        example = self._example(twin.example_id, graph, adjacency, twin.query, twin.kind, Verdict(Status.MISSING))
        return replace(example, pair=twin)

    def contradicted(
        self, example: ReasoningExample, draws: Draws, *, forbidden: Callable[[int, int, int], bool] | None = None
    ) -> ReasoningExample | None:
        """The example with a fact planted that excludes one on the query's way, or None if no pattern applies.

        ``forbidden(head, relation, tail)``, over nodes, says which facts must not be planted.
        """
        adjacency = self._adjacency(example.graph)
        options = self._violations(adjacency, example)
        draws.shuffle(options)
        for edge, (head, relation, tail) in options[:4]:
            if forbidden is not None and forbidden(head, relation, tail):
                continue
            graph, planted, moved = _with_fact(example.graph, (head, relation, tail), edge)
            changed = self._adjacency(graph)
            verdict = solve(changed, example.query, example.kind, rules=self.rules, patterns=self.patterns)
            if verdict.status is not Status.CONTRADICTED:
                continue
            made = self._example(example.example_id, graph, changed, example.query, example.kind, verdict)
            crossed = {step >> 1 for path in made.competing_paths for step in path}
            if planted in crossed and moved in crossed:
                return made
        return None

    def _example(
        self,
        example_id: int,
        graph: ExampleGraph,
        adjacency: Adjacency,
        query: Query,
        kind: QueryKind,
        verdict: Verdict,
    ) -> ReasoningExample:
        walks = candidate_walks(adjacency, query, self.rules, self.max_paths)
        supports = [self.supports(walk, query, kind, verdict) for walk in walks]
        supporting = [walk for walk, support in zip(walks, supports, strict=True) if support]
        if kind in (QueryKind.LINK, QueryKind.RELATION):
            hops = min((len(walk.steps) for walk in supporting), default=0)
        else:
            hops = max(map(len, query.chains))
        entities: tuple[int, ...] = tuple(graph.node_entities[list(verdict.answers)].tolist())
        return ReasoningExample(
            example_id=example_id,
            graph=graph,
            query=query,
            kind=kind,
            status=verdict.status,
            answers=verdict.answers,
            answer_entities=() if any(entity < 0 for entity in entities) else entities,
            answer_relation=verdict.relation,
            supporting_paths=tuple(walk.steps for walk in supporting),
            competing_paths=tuple(walk.steps for walk, support in zip(walks, supports, strict=True) if not support),
            hops=hops,
        )

    def supports(self, walk: Walk, query: Query, kind: QueryKind, verdict: Verdict) -> bool:
        """Whether a walk proves an answer: it follows the query's chain, or rules, to one."""
        if verdict.status is not Status.SUPPORTED:
            return False
        if kind is QueryKind.RELATION:
            return verdict.relation in self.rules.conclusions(walk.relations)
        if walk.end not in verdict.answers:
            return False
        if kind is QueryKind.LINK:
            return self.rules.leads_to(query.chains[0][0], walk.relations)
        return (walk.start, walk.relations) in zip(query.anchors, query.chains, strict=False)

    def _cut(self, twin: ReasoningExample, draws: Draws) -> ExampleGraph | None:
        """The graph without a set of edges, so that nothing is derived, and of which none could stay."""
        by_walks = twin.kind in (QueryKind.LINK, QueryKind.RELATION)
        cut = self._hitting_cut(twin) if by_walks else self._layer_cut(twin, draws)
        if cut is None or len(cut) > _MAX_CUT:
            return None
        for edge in sorted(cut) if len(cut) > 1 else ():
            if self._is_missing(twin, _without(twin.graph, cut - {edge})):
                cut = cut - {edge}
        graph = _without(twin.graph, cut)
        return graph if self._is_missing(twin, graph) else None

    def _is_missing(self, twin: ReasoningExample, graph: ExampleGraph) -> bool:
        return self.solve(graph, twin.query, twin.kind).status is Status.MISSING

    def _layer_cut(self, twin: ReasoningExample, draws: Draws) -> set[int]:
        """The hop of a chain that the fewest edges cross on the way to the answers."""
        adjacency = self._adjacency(twin.graph)
        hops: list[set[int]] = []
        for anchor, chain in zip(twin.query.anchors, twin.query.chains, strict=False):
            layers = adjacency.pruned_layers(anchor, chain, set(twin.answers))
            for hop, relation in enumerate(chain):
                crossing = {
                    step >> 1
                    for node in layers[hop]
                    for step, other in adjacency.follow(node, relation)
                    if other in layers[hop + 1]
                }
                hops.append(crossing)
        fewest = min(map(len, hops))
        return draws.choice([hop for hop in hops if len(hop) == fewest])

    def _hitting_cut(self, twin: ReasoningExample) -> set[int] | None:
        """Edges taken greedily, those on most proofs first, until no proof is left."""
        cut: set[int] = set()
        while len(cut) < _MAX_CUT:
            kept = np.array([edge for edge in range(twin.graph.num_edges) if edge not in cut])
            graph = _without(twin.graph, cut)
            adjacency = self._adjacency(graph)
            verdict = solve(adjacency, twin.query, twin.kind, rules=self.rules, patterns=self.patterns)
            if verdict.status is not Status.SUPPORTED:
                return cut if verdict.status is Status.MISSING else None
            on_proofs: Counter[int] = Counter()
            for walk in derivations(adjacency, twin.query, twin.kind, verdict, self.rules):
                on_proofs.update({step >> 1 for step in walk.steps})
            edge = min(on_proofs, key=lambda e: (-on_proofs[e], e))
            cut.add(int(kept[edge]))
        return None

    def _violations(self, adjacency: Adjacency, example: ReasoningExample) -> list[tuple[int, Fact]]:
        """Facts that exclude an edge on the way, each with that edge; the two lie on walks that compete."""
        options: list[tuple[int, Fact]] = []
        parallel: set[int] = set()
        if example.kind in (QueryKind.LINK, QueryKind.RELATION):
            parallel.update(step >> 1 for path in example.supporting_paths for step in path)
        else:
            for anchor, chain in zip(example.query.anchors, example.query.chains, strict=False):
                layers = adjacency.pruned_layers(anchor, chain, set(example.answers))
                for hop, relation in enumerate(chain):
                    for node in sorted(layers[hop]):
                        for step, other in adjacency.follow(node, relation):
                            if other not in layers[hop + 1]:
                                continue
                            parallel.add(step >> 1)
                            if not step & 1 and relation in self.patterns.functional:
                                options += self._second_values(adjacency, example, chain[hop + 1 :], step >> 1)
        for edge in sorted(parallel):
            head, relation, tail = adjacency.edges[edge]
            if relation in self.patterns.asymmetric:
                options.append((edge, (tail, relation, head)))
            options += [(edge, (head, other, tail)) for other in self.patterns.partners.get(relation, ())]
        return options

    def _second_values(
        self, adjacency: Adjacency, example: ReasoningExample, rest: Sequence[int], edge: int
    ) -> list[tuple[int, Fact]]:
        """Other values for a functional fact, from which the rest of the chain can be followed."""
        head, relation, tail = adjacency.edges[edge]
        others = (node for node in range(adjacency.num_nodes) if node not in (head, tail))
        if example.query.answer_mode is AnswerMode.BOOLEAN and not rest:
            others = (node for node in others if node != example.query.anchors[1])
        open_nodes = [node for node in others if not rest or adjacency.layers(node, rest)[-1]]
        return [(edge, (head, relation, node)) for node in open_nodes[:8]]

    def _adjacency(self, graph: ExampleGraph) -> Adjacency:
        """The neighbour lists of a graph; those of the last few graphs are kept."""
        for known, adjacency in self._recent:
            if known is graph:
                return adjacency
        adjacency = Adjacency(graph, self.rules.num_relations)
        self._recent.append((graph, adjacency))
        del self._recent[:-3]
        return adjacency


def _without(graph: ExampleGraph, edges: set[int]) -> ExampleGraph:
    keep = np.ones(graph.num_edges, dtype=bool)
    keep[sorted(edges)] = False
    return ExampleGraph(graph.node_entities, graph.edge_index[:, keep], graph.edge_type_ids[keep])


def _with_fact(graph: ExampleGraph, fact: Fact, edge: int) -> tuple[ExampleGraph, int, int]:
    """The graph with one fact more, that fact's edge, and where ``edge`` is now."""
    head, relation, tail = fact
    place = int(np.searchsorted(graph.edge_index[1], tail, side="right"))
    index = np.insert(graph.edge_index, place, [head, tail], axis=1)
    grown = ExampleGraph(graph.node_entities, index, np.insert(graph.edge_type_ids, place, relation))
    return grown, place, edge + (edge >= place)
