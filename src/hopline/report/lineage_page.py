"""The lineage of a version as one HTML file that needs no script, no network and no other file."""

from __future__ import annotations

from functools import cache
from importlib import resources

from jinja2 import DictLoader, Environment, StrictUndefined
from markupsafe import Markup

from hopline.report.lineage_data import LINEAGE_KINDS, LineageGraph, NodeKind
from hopline.report.lineage_picture import draw_lineage

__all__ = ["render_lineage"]


def render_lineage(graph: LineageGraph) -> bytes:
    """The page as UTF-8 HTML; the same graph gives the same bytes. All text of the graph is escaped."""
    environment, css = _environment()
    page = environment.get_template("lineage.html.j2").render(
        graph=graph,
        css=css,
        wide=Markup(draw_lineage(graph, wide=True)),  # noqa: S704 - drawn here
        narrow=Markup(draw_lineage(graph, wide=False)),  # noqa: S704 - drawn here
        kinds=LINEAGE_KINDS,
        columns={kind: _columns(graph, kind) for kind in LINEAGE_KINDS},
    )
    return page.encode()


def _columns(graph: LineageGraph, kind: NodeKind) -> list[str]:
    """The names of the facts of a kind, each once."""
    return list(dict.fromkeys(name for node in graph.of(kind) for name in node.facts))


@cache
def _environment() -> tuple[Environment, Markup]:
    folder = resources.files("hopline.report") / "templates"
    texts = {
        name: (folder / name).read_text(encoding="utf-8") for name in ("lineage.html.j2", "report.css", "lineage.css")
    }
    environment = Environment(
        loader=DictLoader(texts), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment, Markup(texts["report.css"] + texts["lineage.css"])  # noqa: S704 - our own files
