"""The report: complete, safe, self-contained, and the same bytes every time."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from hopline.evaluation import Calibration, Candidate, choose
from hopline.report import ReportData, TrainingCurves, render_report

VOID = {"meta", "br", "link", "img", "hr", "input"}


class Page(HTMLParser):
    """Collects elements, text and nesting errors."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data) -> None:
        if not self.open or self.open[-1] != "style":
            self.text.append(data)

    @property
    def words(self) -> str:
        return " ".join(" ".join(self.text).split())


@pytest.fixture(scope="module")
def html(report_data: ReportData) -> str:
    return render_report(report_data).decode()


def test_the_same_data_give_the_same_bytes(report_data: ReportData, html: str) -> None:
    assert render_report(report_data).decode() == html


def test_nothing_is_loaded_and_nothing_runs(html: str) -> None:
    page = Page(html)
    names = {tag for tag, _ in page.tags}
    assert not names & {"script", "link", "iframe", "img", "object", "form"}
    for tag, attributes in page.tags:
        assert not any(name.startswith("on") for name in attributes)
        for name in ("src", "href", "xlink:href"):
            assert (attributes.get(name) or "#").startswith("#"), (tag, name)
    assert not re.search(r"url\((?!#)", html)
    assert "@import" not in html
    policy = next(a["content"] for _, a in page.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy == "default-src 'none'; style-src 'unsafe-inline'"


def test_the_page_is_well_formed_and_accessible(html: str) -> None:
    page = Page(html)
    assert page.open == []
    ids = [attributes["id"] for _, attributes in page.tags if attributes.get("id")]
    assert max(Counter(ids).values()) == 1
    for _, attributes in page.tags:
        if label := attributes.get("aria-labelledby"):
            assert label in ids
    referred = re.findall(r"url\(#([^)]+)\)", html) + re.findall(r'href="#([^"]+)"', html)
    assert referred
    assert set(referred) <= set(ids)
    tags = [tag for tag, _ in page.tags]
    assert tags.count("h1") == 1
    assert tags.count("table") == tags.count("caption")
    assert tags.count("table") >= 6
    pictures = [attributes for tag, attributes in page.tags if tag == "svg"]
    assert len(pictures) > 10
    assert all(len(picture["aria-label"]) > 20 and picture["role"] == "img" for picture in pictures)
    levels = [int(tag[1]) for tag in tags if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1
    assert all(b - a <= 1 for a, b in itertools.pairwise(levels))
    assert next(a["lang"] for tag, a in page.tags if tag == "html") == "en"


def test_both_colour_schemes_and_no_fixed_colour_in_pictures(html: str) -> None:
    assert "@media (prefers-color-scheme: dark)" in html
    pictures = "".join(re.findall(r"<svg.*?</svg>", html, flags=re.DOTALL))
    assert "var(--series-0)" in pictures
    assert not re.search(r"#[0-9a-fA-F]{6}", pictures)


def test_what_a_person_wants_first_is_on_top(report_data: ReportData, html: str) -> None:
    words = Page(html).words
    order = [
        "umls-reasoner", report_data.dataset_hash[:16], "Overall score 0.887", "Link MRR 0.810", "Step 4500",
        report_data.choice.rule, "Training", "How far the confidence", "By number of hops", "By kind of query",
        "Candidate checkpoints", "Sample answers", "Data and settings",
    ]  # fmt: skip
    places = [words.index(part, 20 if part == "umls-reasoner" else 0) for part in order]
    assert places == sorted(places)


def test_every_metric_candidate_split_and_sample_is_there(report_data: ReportData, html: str) -> None:
    words = Page(html).words
    for name in report_data.metrics:
        assert name in words
    for candidate in report_data.choice.table:
        assert f"{candidate.step}" in words
        assert candidate.sha256 in html
    for split in report_data.splits:
        assert split.name in words
    for sample in report_data.samples:
        assert sample.question in words
        assert sample.expected in words
    assert 'aria-label="anna —parent→ bob —brother→ carl ←works with— dora"' in html
    assert "and 53 more" in words
    assert "supported 98% , expected missing" in words
    assert "partly right" in words
    assert "&gt;99%" in html
    assert "betas:\n" in html
    assert report_data.calibration.note in words


HOSTILE = "</title></style><script>alert(1)</script><img src=x onerror=alert(2)>\"'&{{7*7}}"


def test_text_of_the_data_cannot_become_markup(report_data: ReportData) -> None:
    sample = report_data.samples[0]
    answers = tuple(replace(given, name=HOSTILE) for given in sample.answer.answers)
    hops = tuple(replace(hop, head=HOSTILE, relation=HOSTILE, tail=HOSTILE) for hop in sample.answer.evidence)
    hostile = replace(
        sample, question=HOSTILE, expected=HOSTILE, facts=(HOSTILE,), kind=HOSTILE,
        answer=replace(sample.answer, answers=answers, evidence=hops, status=HOSTILE),
    )  # fmt: skip
    data = replace(
        report_data,
        name=HOSTILE,
        dataset_source=HOSTILE,
        dataset_hash=HOSTILE,
        config={HOSTILE: HOSTILE},
        samples=(hostile,),
        metrics={**report_data.metrics, HOSTILE: 0.5},
        versions={HOSTILE: HOSTILE},
        calibration=replace(report_data.calibration, note=HOSTILE),
        choice=replace(report_data.choice, rule=HOSTILE),
        splits=(replace(report_data.splits[0], name=HOSTILE, kinds={HOSTILE: 3}),),
        curves=replace(report_data.curves, components={HOSTILE: report_data.curves.loss}),
    )
    html = render_report(data).decode()
    page = Page(html)
    assert page.open == []
    assert not {tag for tag, _ in page.tags} & {"script", "img"}
    assert "49" not in Page(html).words.split("7*7")[0]
    assert html.count("{{7*7}}") > 10
    assert not any(name.startswith("on") for _, attributes in page.tags for name in attributes)


def test_a_bare_evaluation_still_makes_a_page(report_data: ReportData) -> None:
    """No curves, no samples, no slices, one candidate, figures that are no numbers."""
    data = replace(
        report_data,
        splits=(),
        choice=choose([Candidate(1, 0.5)], {"overall.score": 1.0}),
        metrics={"overall.score": float("nan"), "confidence.n": 1.0},
        slices=(),
        reliability=(),
        calibration=Calibration(),
        curves=TrainingCurves(),
        samples=(),
        parameters=None,
        versions={},
        config={},
    )
    page = Page(render_report(data).decode())
    assert page.open == []
    assert "Overall score –" in page.words
    for section in ("Training", "By number of hops", "Sample answers"):
        assert section not in page.words


def test_curves_with_gaps_do_not_break_the_page(report_data: ReportData) -> None:
    nan = float("nan")
    curves = TrainingCurves(
        steps=(1, 2, 3),
        loss=(nan, -1.0, 2.0),
        learning_rate=(nan, nan, nan),
        components={"path": (0.0, 0.0, 0.0), "answer": (nan, 1.0, 0.5)},
    )
    page = Page(render_report(replace(report_data, curves=curves)).decode())
    assert page.open == []
    labels = [attributes["aria-label"] for tag, attributes in page.tags if tag == "svg"]
    assert "answer over training, 1 at first, 0.5 at last." in labels
    assert not any(label.startswith(("learning rate", "path")) for label in labels)
