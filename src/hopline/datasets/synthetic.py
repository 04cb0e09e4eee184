"""Synthetic examples: each a small graph of its own in one world, drawn from a counter."""

from __future__ import annotations

from typing import Final

from hopline.config import DatasetConfig
from hopline.datasets.draws import Draws, philox_key
from hopline.datasets.evidence import Assembler, sorted_graph
from hopline.datasets.splits import SPLITS
from hopline.datasets.wishes import Wish, WishList
from hopline.datasets.world import World
from hopline.errors import DataError
from hopline.graph import Query, QueryKind, ReasoningExample, Status

__all__ = ["SyntheticExamples"]

_ATTEMPTS: Final = 2_000
_OWN_EDGES: Final = (3, 2)
"""Edges of the world for each node, as a fraction; noise edges come on top."""

_DENSE_HOPS: Final = 3
"""Longest derivation of a relation that is laid into a dense graph."""

Fact = tuple[int, int, int]


class SyntheticExamples:
    """Draws examples of a world."""

    def __init__(self, config: DatasetConfig, world: World) -> None:
        self._config = config
        self._world = world
        self._assembler = Assembler(world.rules, world.patterns, config.max_paths, config.max_answers)
        self._key = philox_key(config.seed, "synthetic")
        self._wishes = WishList(config, link=True)

    def unit(self, split: str, index: int, version: int) -> ReasoningExample:
        """One example; another ``version`` is another example in its place.

        Raises:
            DataError: the config leaves no room for it.
        """
        stream = SPLITS.index(split) + (version << 8)
        wish = self._wishes.wish(Draws(self._key, stream, index), split)
        for attempt in range(1, _ATTEMPTS):
            draws = Draws(self._key, stream, index, attempt)
            example = self._make(index, wish.relaxed(attempt, self._wishes), draws)
            if example is not None:
                return example
        raise DataError(
            f"synthetic: after {_ATTEMPTS} attempts no example fits dataset.max_nodes {self._config.max_nodes}, "
            f"max_hops {self._config.max_hops} and max_answers {self._config.max_answers}; raise max_nodes or lower max_hops"
        )

    def _make(self, example_id: int, wish: Wish, draws: Draws) -> ReasoningExample | None:
        size = draws.between(self._config.min_nodes, self._config.max_nodes)
        scene = _Scene(self._world, size)
        laid = _lay(scene, wish, draws)
        if laid is None:
            return None
        anchors, chains = laid
        scene.fill(draws, self._config.noise_edges)
        order = list(range(len(scene.states)))
        draws.shuffle(order)
        place = [0] * len(order)
        for new, old in enumerate(order):
            place[old] = new
        graph = sorted_graph([-1] * len(order), [(place[h], r, place[t]) for h, r, t in scene.facts])
        query = Query(tuple(place[anchor] for anchor in anchors), chains, wish.mode)
        example = self._assembler.supported(example_id, graph, query, wish.kind)
        if example is None or wish.status is Status.SUPPORTED:
            return example
        if wish.status is Status.MISSING:
            return self._assembler.missing(example, draws)
        return self._assembler.contradicted(example, draws)


class _Scene:
    """The nodes of one graph with their hidden states, and its facts, none of which excludes another."""

    def __init__(self, world: World, size: int) -> None:
        self.world = world
        self.size = size
        self.states: list[int] = []
        self.facts: dict[Fact, None] = {}
        self._has_value: set[tuple[int, int]] = set()
        self.closed: set[frozenset[int]] = set()
        """Pairs of nodes that get no other edge."""
        self.hanging = False
        """Other nodes hang on one node of the evidence each, so that they make no way beside it."""
        self._home: list[int] = []
        self.hidden: tuple[int, int] | None = None
        """A node and a relation that it gets no other fact of, in either reading."""

    def node(self, state: int) -> int:
        """A new node."""
        self.states.append(state)
        self._home.append(len(self._home))
        return len(self.states) - 1

    def join(self, start: int, signed: int, end: int) -> bool:
        """Add the fact behind a signed relation; False if it is there or is excluded."""
        relations = self.world.num_relations
        fact = (start, signed, end) if signed < relations else (end, signed - relations, start)
        if fact in self.facts:
            return False
        if fact[1] in self.world.patterns.functional:
            if (fact[0], fact[1]) in self._has_value:
                return False
            self._has_value.add((fact[0], fact[1]))
        self.facts[fact] = None
        return True

    def join_any(self, start: int, end: int, draws: Draws) -> None:
        """Add the fact that the states of two nodes allow, in one reading or the other, unless it has to stay out."""
        relation = self.world.relation_between(self.states[start], self.states[end])
        if relation < 0 or frozenset((start, end)) in self.closed:
            return
        if self.hanging and self._home[start] != self._home[end]:
            return
        back = self.world.inverse[relation]
        if self.hidden is not None and self.hidden in ((start, relation), (end, back)):
            return
        if draws.word() & 1:
            self.join(start, relation, end)
        else:
            self.join(end, back, start)

    def fill(self, draws: Draws, noise: float) -> None:
        """The other nodes, each joined to an earlier one, then edges between random nodes."""
        used = len(self.states)
        for _ in range(self.size - used):
            earlier = draws.below(len(self.states))
            state = (
                self.states[draws.below(len(self.states))] if draws.word() & 1 else draws.below(self.world.num_states)
            )
            node = self.node(state)
            self._home[node] = self._home[earlier]
            self.join_any(earlier, node, draws)
        wanted = self.size * _OWN_EDGES[0] // _OWN_EDGES[1]
        wanted += int(wanted * noise)
        for _ in range(max(0, wanted - len(self.facts))):
            start, end = draws.below(self.size), draws.below(self.size)
            if start != end:
                self.join_any(start, end, draws)


def _lay(scene: _Scene, wish: Wish, draws: Draws) -> tuple[tuple[int, ...], tuple[tuple[int, ...], ...]] | None:
    """Lay the evidence of a query into an empty scene; its anchors and chains, or None if there is no room."""
    world = scene.world
    anchor = scene.node(draws.below(world.num_states))
    if wish.kind in (QueryKind.LINK, QueryKind.RELATION):
        relation = draws.below(world.num_relations)
        chain = world.expand(relation, min(wish.hops, 2) if wish.kind is QueryKind.LINK else wish.hops, draws)
        ends = _branch(scene, anchor, chain, draws, widen=wish.kind is QueryKind.LINK)
        if not ends:
            return None
        if wish.kind is QueryKind.LINK:
            scene.hidden = (anchor, relation)
            return (anchor,), ((relation,),)
        scene.closed.add(frozenset((anchor, ends[0])))
        # In a dense graph a long derivation would hardly ever be among the shortest ways.
        scene.hanging = wish.hops > _DENSE_HOPS
        return (anchor, ends[0]), ()
    chain = _random_chain(world, wish.hops, draws)
    ends = _branch(scene, anchor, chain, draws, widen=True)
    if not ends:
        return None
    if wish.kind is QueryKind.BOOLEAN:
        return (anchor, draws.choice(ends)), (chain,)
    if wish.kind is not QueryKind.AGGREGATE:
        return (anchor,), (chain,)
    second = _random_chain(world, wish.second_hops, draws)
    other = _lead_to(scene, second, ends, draws)
    return None if other is None else ((anchor, other), (chain, second))


def _random_chain(world: World, hops: int, draws: Draws) -> tuple[int, ...]:
    """Relations of which none undoes the one before."""
    chain: list[int] = []
    before = -1
    for _ in range(hops):
        relation = draws.below(world.num_relations)
        while before >= 0 and relation == world.inverse[before]:
            relation = draws.below(world.num_relations)
        chain.append(world.written(relation, draws))
        before = relation
    return tuple(chain)


def _branch(scene: _Scene, anchor: int, chain: tuple[int, ...], draws: Draws, *, widen: bool) -> list[int]:
    """Lay a chain from the anchor, now and then to several nodes a hop; its last nodes, none if there is no room."""
    layer = [anchor]
    for relation in chain:
        state = scene.world.follow(scene.states[layer[0]], relation)
        width = 1
        while widen and width < 4 and draws.below(3) == 0:
            width += 1
        following: list[int] = []
        for number in range(width):
            if len(scene.states) >= scene.size - 1:
                break
            # The first hangs on the first, so that the chain never breaks.
            start = layer[0] if number == 0 else draws.choice(layer)
            node = scene.node(state)
            if scene.join(start, relation, node):
                following.append(node)
        if not following:
            return []
        layer = following
    return layer


def _lead_to(scene: _Scene, chain: tuple[int, ...], ends: list[int], draws: Draws) -> int | None:
    """Lay a chain that leads to one or two of some nodes of equal state; its anchor, or None if there is no room."""
    relations = scene.world.num_relations
    if len(scene.states) + len(chain) > scene.size:
        return None
    goals = list(ends)
    draws.shuffle(goals)
    node = goals[0]
    for relation in reversed(chain):
        undo = relation - relations if relation >= relations else relation + relations
        before = scene.node(scene.world.follow(scene.states[node], undo))
        if not scene.join(before, relation, node):
            return None
        if node == goals[0] and len(goals) > 1 and draws.word() & 1:
            scene.join(before, relation, goals[1])
        node = before
    return node
