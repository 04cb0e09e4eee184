"""The page of a lineage: self-contained, safe, and every box leads to its row."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from dataclasses import replace

import pytest

from hopline.report.lineage_data import LINEAGE_KINDS, LineageEdge, LineageGraph, LineageNode
from hopline.report.lineage_page import render_lineage
from tests.report.test_html import Page

DIGEST = "ab" * 32
EVIL = '<script>alert(1)</script>"onload="x'


def graph(candidates: int = 3, text: str = "plain") -> LineageGraph:
    """A chain with some candidates, the last of them chosen."""
    steps = [
        LineageNode(
            f"candidate-{step}",
            "candidate",
            f"step {step}",
            {"score": "0.5", "sha256": DIGEST},
            "missing" if step == 1 else "there",
            text if step == 1 else "",
            step == candidates,
        )
        for step in range(1, candidates + 1)
    ]
    nodes = (
        LineageNode("source-1", "source", text, {"sha256": DIGEST}, "recorded"),
        LineageNode("dataset", "dataset", "d", {"split rule": text}, "there"),
        LineageNode("attempt-1", "attempt", "attempt 1", {"end": text}, "there"),
        *steps,
        LineageNode("choice", "choice", "step 3", {"rule": text}, "recorded"),
        LineageNode("version", "version", DIGEST[:12], {"gate": f"accepted: {text}"}, "there"),
        LineageNode("champion", "champion", "this version", {"since": "2026-12-01T00:00:00Z"}, "unknown", text),
    )
    ids = [["source-1"], ["dataset"], ["attempt-1"], [step.id for step in steps], ["choice"], ["version"], ["champion"]]
    edges = [LineageEdge(a, b) for now, then in itertools.pairwise(ids) for a in now for b in then]
    return LineageGraph("tiny", DIGEST, text, None, nodes, tuple(edges))


def test_the_same_graph_gives_the_same_bytes() -> None:
    assert render_lineage(graph()) == render_lineage(graph())


def test_nothing_is_loaded_and_nothing_runs() -> None:
    html = render_lineage(graph(text=EVIL)).decode()
    page = Page(html)
    assert page.open == [], "well-formed"
    assert not {tag for tag, _ in page.tags} & {"script", "link", "iframe", "img", "object", "form"}
    for tag, attributes in page.tags:
        assert not any(name.startswith("on") for name in attributes), tag
        for name in ("src", "href", "xlink:href"):
            assert (attributes.get(name) or "#").startswith("#"), (tag, name)
    assert not re.search(r"url\(|@import", html)
    policy = next(a["content"] for _, a in page.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy == "default-src 'none'; style-src 'unsafe-inline'"
    assert EVIL in page.words


def test_every_box_leads_to_a_row_by_the_keyboard() -> None:
    page = Page(render_lineage(graph()).decode())
    ids = Counter(attributes["id"] for _, attributes in page.tags if attributes.get("id"))
    assert max(ids.values()) == 1
    targets = [attributes["href"] for tag, attributes in page.tags if tag == "a"]
    assert {target[1:] for target in targets if target} <= set(ids)
    # Two drawings of nine things, and the list of the two that are lost.
    assert len(targets) == 2 * len(graph().nodes) + 2
    regions = [attributes for _, attributes in page.tags if attributes.get("role") == "region"]
    assert [region["tabindex"] for region in regions] == ["0"] * len(LINEAGE_KINDS)


def test_what_is_lost_is_listed() -> None:
    words = Page(render_lineage(graph(text="gone to sea")).decode()).words
    assert "Missing or not known" in words
    assert "Candidates: step 1" in words
    whole = replace(graph(), nodes=tuple(replace(node, state="there") for node in graph().nodes))
    assert "Missing or not known" not in Page(render_lineage(whole).decode()).words


@pytest.mark.parametrize("candidates", [8, 9, 400])
def test_many_candidates_have_one_box_together_and_a_row_each(candidates: int) -> None:
    html = render_lineage(graph(candidates)).decode()
    assert html.count('class="box there chosen"') == 2, "the chosen one has its box in both drawings"
    boxes = html.count('class="box ')
    assert boxes == 2 * (6 + 8)
    assert html.count("<tr id=") == 6 + candidates
    assert (f"and {candidates - 7} more" in html) == (candidates > 8)
    assert len(html) < 200_000
