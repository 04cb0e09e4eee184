"""Paths in the exchange format: edge indices, the direction of each step read from the walk."""

from __future__ import annotations

from collections.abc import Sequence

from hopline.graph import Path, make_step

__all__ = ["path_from_json", "path_to_json"]

Edge = tuple[int, int, int]


def path_to_json(path: Sequence[int], edges: Sequence[Edge], anchors: Sequence[int]) -> list[int | str]:
    """A path as edge indices, with ``"~e"`` for backwards steps only where the plain indices would be read otherwise."""
    plain: list[int | str] = [step >> 1 for step in path]
    if _infer([step >> 1 for step in path], edges, anchors) == tuple(path):
        return plain
    return [f"~{step >> 1}" if step & 1 else step >> 1 for step in path]


def path_from_json(items: object, edges: Sequence[Edge], anchors: Sequence[int]) -> Path:
    """The steps of a path. ValueError, saying what is wrong, if it is none."""
    if not isinstance(items, list) or not items:
        raise ValueError(f"found {items!r}, expected a list of edge indices")
    explicit = any(isinstance(item, str) for item in items)
    steps: list[int] = []
    for item in items:
        backwards = isinstance(item, str) and item.startswith("~") and item[1:].isdecimal()
        index = int(item[1:]) if backwards else item
        if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < len(edges):
            raise ValueError(f"edge {item!r} is not there; there are {len(edges)}")
        steps.append(make_step(index, reverse=backwards))
    if explicit:
        return tuple(steps)
    inferred = _infer([step >> 1 for step in steps], edges, anchors)
    if inferred is None:
        raise ValueError(f"edges {items} are no walk from an anchor")
    return inferred


def _infer(indices: Sequence[int], edges: Sequence[Edge], anchors: Sequence[int]) -> Path | None:
    """The walk over these edges from an anchor that goes backwards the least; on a tie, from the first anchor."""
    best: Path | None = None
    for anchor in anchors:
        node, steps = anchor, []
        for index in indices:
            head, _, tail = edges[index]
            if node not in (head, tail):
                break
            backwards = node != head
            steps.append(make_step(index, reverse=backwards))
            node = head if backwards else tail
        else:
            walk = tuple(steps)
            if best is None or sum(step & 1 for step in walk) < sum(step & 1 for step in best):
                best = walk
    return best
