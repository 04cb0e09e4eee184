"""The graph of a lineage as inline SVG, in columns for a wide page and in rows for a narrow one.

Its colours are those of the page, so that one drawing serves light and dark; a box is a link to its row in the tables.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import Final

from hopline.report.lineage_data import LINEAGE_KINDS, LineageGraph, LineageNode, NodeKind

__all__ = ["draw_lineage"]

_MOST: Final = 8
"""Boxes of one kind; what is more stands in the tables alone, but the chosen one always has its box."""
_BOX_HEIGHT: Final = 46
_GAP: Final = 14
_HEADING: Final = 26
_WIDE: Final = (142, 24)
"""Width of a box, and between columns."""
_NARROW: Final = (163, 34)
"""Width of a box, and between rows of another kind."""
_PER_ROW: Final = 2
_LETTER: Final = 6.9
"""Width of a letter of the boxes, on average, in units of the drawing."""
_SHORT: Final = 12


@dataclass(frozen=True, slots=True)
class _Box:
    """A node, or what stands for the ones that have no box, with its upper left corner."""

    node: LineageNode | None
    kind: NodeKind
    more: int
    x: float
    y: float


def draw_lineage(graph: LineageGraph, *, wide: bool) -> str:
    """Draw the graph: from left to right, or, for a narrow page, from top to bottom. All text of the graph is escaped."""
    width = _WIDE[0] if wide else _NARROW[0]
    boxes, headings, size = _columns(graph) if wide else _rows(graph)
    places = {box.node.id: box for box in boxes if box.node is not None}
    rest = {box.kind: box for box in boxes if box.node is None}
    kinds = {node.id: node.kind for node in graph.nodes}
    # A node without a box is drawn as part of the box that stands for the rest of its kind.
    ends = [
        (places.get(edge.source) or rest[kinds[edge.source]], places.get(edge.target) or rest[kinds[edge.target]])
        for edge in graph.edges
    ]
    chosen = {node.id for node in graph.nodes if node.chosen}
    lines = dict.fromkeys(_line(source, target, width, wide, chosen) for source, target in ends if source != target)
    words = [f'<text class="kind" x="{x:g}" y="{y:g}">{escape(heading)}</text>' for heading, x, y in headings]
    label = f"Graph of the lineage of {graph.name}: {len(graph.nodes)} things and {len(graph.edges)} links between them"
    return "".join(
        (
            f'<svg viewBox="0 0 {size[0]:g} {size[1]:g}" role="group" aria-label="{escape(label)}">',
            *lines,
            *words,
            *(_box(box, width) for box in boxes),
            "</svg>",
        )
    )


def _columns(graph: LineageGraph) -> tuple[list[_Box], list[tuple[str, float, float]], tuple[float, float]]:
    groups = {kind: _shown(graph, kind) for kind in LINEAGE_KINDS}
    step = _BOX_HEIGHT + _GAP
    tallest = max(len(nodes) + (more > 0) for nodes, more in groups.values())
    height = _HEADING + tallest * step
    boxes: list[_Box] = []
    headings: list[tuple[str, float, float]] = []
    for column, (kind, (nodes, more)) in enumerate(groups.items()):
        x = 1 + column * (_WIDE[0] + _WIDE[1])
        count = len(nodes) + (more > 0)
        y = _HEADING + (tallest - count) * step / 2
        headings.append((LINEAGE_KINDS[kind], x, y - 9))
        members: list[LineageNode | None] = [*nodes, *([None] if more else [])]
        boxes += [_Box(node, kind, more, x, y + place * step) for place, node in enumerate(members)]
    return boxes, headings, (len(groups) * (_WIDE[0] + _WIDE[1]) - _WIDE[1] + 2, height)


def _rows(graph: LineageGraph) -> tuple[list[_Box], list[tuple[str, float, float]], tuple[float, float]]:
    boxes: list[_Box] = []
    headings: list[tuple[str, float, float]] = []
    whole = _PER_ROW * _NARROW[0] + (_PER_ROW - 1) * _GAP
    y = 0.0
    for kind, heading in LINEAGE_KINDS.items():
        nodes, more = _shown(graph, kind)
        y += _HEADING
        headings.append((heading, 1.0, y - 9))
        members: list[LineageNode | None] = [*nodes, *([None] if more else [])]
        for place, node in enumerate(members):
            row, column = divmod(place, _PER_ROW)
            x = 1 + column * (_NARROW[0] + _GAP)
            boxes.append(_Box(node, kind, more, x, y + row * (_BOX_HEIGHT + _GAP)))
        y += -(-len(members) // _PER_ROW) * (_BOX_HEIGHT + _GAP) - _GAP + _NARROW[1] - _HEADING / 2
    return boxes, headings, (whole + 2, y)


def _shown(graph: LineageGraph, kind: NodeKind) -> tuple[list[LineageNode], int]:
    """The nodes of a kind that get a box, in order, and how many do not."""
    nodes = list(graph.of(kind))
    if len(nodes) <= _MOST:
        return nodes, 0
    kept = sorted(range(len(nodes)), key=lambda place: (not nodes[place].chosen, place))[: _MOST - 1]
    return [nodes[place] for place in sorted(kept)], len(nodes) - len(kept)


def _line(source: _Box, target: _Box, width: float, wide: bool, chosen: set[str]) -> str:
    if wide and source.kind != target.kind:
        x1, y1, x2, y2 = source.x + width, source.y + _BOX_HEIGHT / 2, target.x, target.y + _BOX_HEIGHT / 2
        middle = (x1 + x2) / 2
        path = f"M{x1:g} {y1:g}C{middle:g} {y1:g} {middle:g} {y2:g} {x2:g} {y2:g}"
    else:
        x1, y1, x2, y2 = source.x + width / 2, source.y + _BOX_HEIGHT, target.x + width / 2, target.y
        middle = (y1 + y2) / 2
        path = f"M{x1:g} {y1:g}C{x1:g} {middle:g} {x2:g} {middle:g} {x2:g} {y2:g}"
    ids = {box.node.id for box in (source, target) if box.node is not None}
    # Candidates that were not chosen lead nowhere.
    faint = {source.kind, target.kind} & {"candidate"} and not ids & chosen
    return f'<path class="{"link faint" if faint else "link"}" d="{path}"/>'


def _box(box: _Box, width: float) -> str:
    node = box.node
    if node is None:
        title, note, style, target = f"and {box.more} more", "in the table below", "recorded", f"kind-{box.kind}"
    else:
        value = next(iter(node.facts.values()), "")
        note = f"{node.state}" if node.state not in ("there", "recorded") else _second(node, value)
        title, style, target = node.title, f"{node.state}{' chosen' if node.chosen else ''}", node.id
    letters = int((width - 20) / _LETTER)
    return (
        f'<a href="#{escape(target)}"><title>{escape(title)}</title>'
        f'<rect class="box {style}" x="{box.x:g}" y="{box.y:g}" width="{width}" height="{_BOX_HEIGHT}" rx="9"/>'
        f'<text class="title" x="{box.x + 10:g}" y="{box.y + 19:g}">{escape(_cut(title, letters))}</text>'
        f'<text class="note" x="{box.x + 10:g}" y="{box.y + 36:g}">{escape(_cut(note, letters + 2))}</text></a>'
    )


def _second(node: LineageNode, first: str) -> str:
    """The second line of a box."""
    wanted = {"candidate": "score", "source": "sha256", "dataset": "split rule", "attempt": "end", "choice": "rule"}
    name = wanted.get(node.kind, "")
    value = node.facts.get(name, first)
    if node.kind == "version":
        return f"gate {node.facts['gate'].partition(':')[0]}"
    if node.kind == "champion":
        value = node.facts.get("since", first)[:10]
    if node.kind == "candidate":
        return f"score {value}{', chosen' if node.chosen else ''}"
    return value[:_SHORT] if len(value) == 64 else value


def _cut(text: str, letters: int) -> str:
    return text if len(text) <= letters else f"{text[: letters - 1]}…"
