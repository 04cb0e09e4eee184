"""Candidate paths: the walks that a model chooses its evidence from.

The candidates are a function of the graph and the query alone, never of the answer: the same enumerator serves examples
when they are made and the queries of users. Which candidates support the answer is decided afterwards.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from hopline.datasets.adjacency import Adjacency, Walk
from hopline.datasets.rulebook import RuleBook
from hopline.datasets.vocabulary import Rule
from hopline.graph import AnswerMode, ExampleGraph, Path, Query

__all__ = ["MAX_RELATION_HOPS", "candidate_paths", "candidate_walks", "walks_between"]

MAX_RELATION_HOPS = 10
"""Longest walk between the anchors of a relation query."""

_DETOUR = 2
"""Walks between two anchors may be this much longer than the shortest."""

_WORK = 20_000
"""Most extensions tried while walks between two anchors are listed."""


_WALKS_OF_A_RULE = 128
"""Most walks along one rule that are looked at."""


def candidate_paths(
    graph: ExampleGraph, query: Query, *, rules: RuleBook | Iterable[Rule], num_relations: int, max_paths: int
) -> list[Path]:
    """The candidate paths of a query, at most ``max_paths``, in a fixed order.

    * A chain: walks along it, then walks that leave it at one hop. Two chains share the places.
    * An entity query of one hop: walks along its relation, along the chains of the relation's rules, and others.
    * A relation query: walks between the two anchors that visit no node twice, shortest first.

    Args:
        graph, query: the problem.
        rules: of the vocabulary; a :class:`RuleBook` saves building one for each call.
        num_relations: R.
        max_paths: most candidates.
    """
    book = rules if isinstance(rules, RuleBook) else RuleBook(rules, num_relations)
    adjacency = Adjacency(graph, num_relations)
    return [walk.steps for walk in candidate_walks(adjacency, query, book, max_paths)]


def candidate_walks(adjacency: Adjacency, query: Query, rules: RuleBook, max_paths: int) -> list[Walk]:
    """As :func:`candidate_paths`, with what each walk passed."""
    if query.answer_mode is AnswerMode.RELATION:
        start, end = query.anchors
        return list(islice(walks_between(adjacency, start, end), max_paths))
    if query.answer_mode is AnswerMode.ENTITIES and len(query.chains[0]) == 1:
        return _one_hop_walks(adjacency, query.anchors[0], query.chains[0][0], rules, max_paths)
    found: list[Walk] = []
    branches = len(query.chains)
    for branch, chain in enumerate(query.chains):
        places = (max_paths - len(found)) // (branches - branch)
        preferred = query.anchors[1] if query.answer_mode is AnswerMode.BOOLEAN else None
        found += _chain_walks(adjacency, query.anchors[branch], chain, places, preferred)
    return list(dict.fromkeys(found))  # two chains from one anchor may share walks


def walks_between(adjacency: Adjacency, start: int, end: int, longest: int = MAX_RELATION_HOPS) -> Iterator[Walk]:
    """Walks from one node to another that visit no node twice: shortest first, then in the order of steps.

    Walks up to two hops longer than the shortest are listed, none longer than ``longest``. In a large dense graph
    the list ends after a fixed amount of work.
    """
    distance = _distances(adjacency, end)
    shortest = distance[start]
    if start == end or shortest < 0:
        return
    work = 0
    for length in range(shortest, min(shortest + _DETOUR, longest) + 1):
        stack: list[tuple[int, Path, tuple[int, ...], tuple[int, ...]]] = [(start, (), (), (start,))]
        while stack:
            node, steps, relations, visited = stack.pop()
            left = length - len(steps)
            if left == 0:
                yield Walk(steps, relations, start, end)
                continue
            work += 1
            if work > _WORK:
                return
            # The last that is pushed is the first to be extended, so push in reverse.
            for relation, step, other in reversed(adjacency.out[node]):
                if other in visited or not 0 <= distance[other] < left or (other == end and left > 1):
                    continue
                stack.append((other, (*steps, step), (*relations, relation), (*visited, other)))


def _distances(adjacency: Adjacency, end: int) -> list[int]:
    """Hops from each node to ``end``, -1 where there is no way."""
    distance = [-1] * adjacency.num_nodes
    distance[end] = 0
    queue = deque([end])
    while queue:
        node = queue.popleft()
        for _, _, other in adjacency.out[node]:
            if distance[other] < 0:
                distance[other] = distance[node] + 1
                queue.append(other)
    return distance


def _chain_walks(
    adjacency: Adjacency, start: int, chain: Sequence[int], places: int, preferred: int | None
) -> list[Walk]:
    """Walks along a chain, three quarters of the places at most if others exist, then walks that leave it once."""
    exact = adjacency.walks(start, chain, limit=4 * places)
    if preferred is not None:
        exact.sort(key=lambda walk: walk.end != preferred)
    leaving = _leaving_walks(adjacency, start, chain, places)
    kept = min(len(exact), max(places - places // 4, places - len(leaving)))
    return exact[:kept] + leaving[: places - kept]


def _leaving_walks(adjacency: Adjacency, start: int, chain: Sequence[int], places: int) -> list[Walk]:
    """Walks that differ from the chain in one relation, and follow it again afterwards as far as that is possible.

    The hops take turns. At each, walks that reach the same next node by another relation come first.
    """
    turns = [_leaving_at(adjacency, start, chain, hop, places) for hop in range(len(chain) - 1, -1, -1)]
    found: list[Walk] = []
    seen: set[Path] = set()
    while turns and len(found) < places:
        waiting = []
        for turn in turns:
            walk = next(turn, None)
            if walk is None:
                continue
            waiting.append(turn)
            if walk.steps not in seen and len(found) < places:
                seen.add(walk.steps)
                found.append(walk)
        turns = waiting
    return found


def _leaving_at(adjacency: Adjacency, start: int, chain: Sequence[int], hop: int, places: int) -> Iterator[Walk]:
    prefixes = adjacency.walks(start, chain[:hop], limit=places)
    rest = chain[hop + 1 :]
    for parallel in (True, False):
        for prefix in prefixes:
            expected = adjacency.targets(prefix.end, chain[hop])
            for relation, step, other in adjacency.out[prefix.end]:
                if relation == chain[hop] or (other in expected) is not parallel:
                    continue
                if prefix.steps and step == prefix.steps[-1] ^ 1:
                    continue  # straight back over the edge that it came by
                steps, relations = (*prefix.steps, step), (*prefix.relations, relation)
                for tail in adjacency.walks(other, rest, limit=1) if rest else ():
                    yield Walk(steps + tail.steps, relations + tail.relations, start, tail.end)
                    break
                else:
                    yield Walk(steps, relations, start, other)


def _one_hop_walks(adjacency: Adjacency, start: int, relation: int, rules: RuleBook, places: int) -> list[Walk]:
    """Walks along the relation, along its rules, and others.

    Rules vote for the nodes that they lead to, each with its confidence. Nodes take turns, the best first, so that one
    that can be reached in many ways does not crowd out the others.
    """
    exact = adjacency.walks(start, (relation,), limit=max(1, places // 4))
    votes: dict[int, float] = {}
    by_end: dict[int, list[Walk]] = {}
    for chain, confidence in rules.chains_for(relation):
        if chain == (relation,):
            continue
        voted: set[int] = set()
        for walk in adjacency.walks(start, chain, limit=_WALKS_OF_A_RULE):
            if walk.end == start:
                continue
            by_end.setdefault(walk.end, []).append(walk)
            if walk.end not in voted:
                voted.add(walk.end)
                votes[walk.end] = votes.get(walk.end, 0.0) + confidence
    order = sorted(by_end, key=lambda end: (-votes[end], end))
    found = dict.fromkeys(exact)
    limit = places - places // 8
    for turn in range(max(map(len, by_end.values()), default=0)):
        for end in order:
            if len(found) >= limit:
                break
            if turn < len(by_end[end]):
                found[by_end[end][turn]] = None
    for signed, step, other in adjacency.at(start):
        if len(found) >= places:
            break
        found.setdefault(Walk((step,), (signed,), start, other))
    return list(found)
