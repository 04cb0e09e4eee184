"""The model card."""

from __future__ import annotations

from dataclasses import replace

import pytest
import yaml

from hopline.report import ReportData, model_card


def front_matter(card: str) -> dict:
    start, matter, _ = card.split("---\n", 2)
    assert start == ""
    return yaml.safe_load(matter)


def test_the_front_matter_names_data_and_figures(report_data: ReportData) -> None:
    (entry,) = front_matter(model_card(report_data))["model-index"]
    (result,) = entry["results"]
    assert entry["name"] == "umls-reasoner"
    assert result["dataset"]["revision"] == report_data.dataset_hash
    assert {figure["type"]: figure["value"] for figure in result["metrics"]}["link.mrr"] == 0.81


@pytest.mark.parametrize(
    "words",
    [
        "# umls-reasoner",
        "## Intended use",
        "## Data",
        "| Link queries: MRR, filtered | 0.8100 | 661 |",
        "| test | 1,322 | 1,400 |",
        "Chains of more than 3 hops were not measured",
        "hopline verify . --key publisher.pub",
        "hopline predict . --input examples.jsonl",
        "known by name",
    ],
)
def test_the_card_says_what_a_user_needs(report_data: ReportData, words: str) -> None:
    assert words in model_card(report_data)


def test_an_anonymous_model_says_so(report_data: ReportData) -> None:
    config = {
        **report_data.config,
        "dataset": {**report_data.config["dataset"], "entities": "anonymous", "test_max_hops": 10},
    }
    card = model_card(replace(report_data, config=config))
    assert "Entities are anonymous" in card
    assert "Chains of more than 10 hops" in card
    assert "vocabulary.json` are unknown" not in card


def test_the_card_is_reproducible(report_data: ReportData) -> None:
    assert model_card(report_data) == model_card(report_data)


def test_text_of_the_data_stays_text(report_data: ReportData) -> None:
    hostile = "x\n---\nlicense: stolen\n# Big <script> | `code` [link](http://x)"
    card = model_card(replace(report_data, dataset_source=hostile, choice=replace(report_data.choice, rule=hostile)))
    matter = front_matter(card)
    assert "license" not in matter
    assert matter["model-index"][0]["results"][0]["dataset"]["name"] == " ".join(hostile.split())
    body = card.split("---\n")[-1]
    assert "\n# Big" not in body
    assert "<script>" not in body.replace("\\<script\\>", "")
    assert "[link]" not in body


def test_figures_that_are_no_numbers_stay_out_of_the_front_matter(report_data: ReportData) -> None:
    card = model_card(replace(report_data, metrics={"overall.score": float("nan"), "link.mrr": 0.5}, config={}))
    figures = front_matter(card)["model-index"][0]["results"][0]["metrics"]
    assert [figure["type"] for figure in figures] == ["link.mrr"]
