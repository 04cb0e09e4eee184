"""In what two manifests differ."""

from __future__ import annotations

import re

import pytest

from hopline.errors import DataError, NotFoundError
from hopline.lineage import RUN_FACTS, Manifest, compare_manifests, read_manifest


def changed(manifest: Manifest, **parts: object) -> Manifest:
    """The manifest with values of its parts replaced."""
    return manifest.model_copy(
        update={name: getattr(manifest, name).model_copy(update=values) for name, values in parts.items()}
    )


def paths(before: Manifest, after: Manifest) -> list[str]:
    return [item.path for item in compare_manifests(before, after)]


@pytest.fixture
def manifest(stage, build) -> Manifest:
    return build(stage())


def test_equal_manifests_do_not_differ(manifest) -> None:
    assert compare_manifests(manifest, Manifest.parse(manifest.to_bytes(), source="m")) == ()


def test_a_difference_has_both_values_and_is_the_other_way_round_too(manifest) -> None:
    other = changed(manifest, training={"steps": 301})
    (found,) = compare_manifests(manifest, other)
    assert (found.path, found.before, found.after, found.run_fact) == ("training.steps", 300, 301, None)
    assert found.to_json() == {"path": "training.steps", "run_fact": None, "before": 300, "after": 301}
    (back,) = compare_manifests(other, manifest)
    assert (back.before, back.after) == (301, 300)


def test_items_of_lists_are_compared_by_name(stage, build) -> None:
    """One file more and one changed are two lines, wherever they stand in the list."""
    before = build(stage())
    folder = stage()
    (folder / "AAA.txt").write_text("first in the list")
    (folder / "README.md").write_text("# other\n")
    after = build(folder)
    found = {item.path: item for item in compare_manifests(before, after)}
    assert set(found) == {
        "subjects.files[AAA.txt]",
        "subjects.files[README.md].size",
        "subjects.files[README.md].sha256",
    }
    added = found["subjects.files[AAA.txt]"]
    assert (added.in_before, added.in_after, added.after["path"]) == (False, True, "AAA.txt")
    assert "before" not in added.to_json()


def test_values_that_python_takes_for_equal_differ(manifest) -> None:
    one, true = (changed(manifest, dataset={"leakage": value}) for value in (1, True))
    assert [(item.before, item.after) for item in compare_manifests(one, true)] == [(1, True)]


def test_null_with_a_reason_differs_from_a_value(manifest) -> None:
    other = changed(manifest, pipeline={"job_name": "job", "reasons": {}})
    found = compare_manifests(manifest, other)
    assert {"pipeline.job_name", "pipeline.reasons"} <= {item.path for item in found}
    assert all(item.run_fact == RUN_FACTS["pipeline"] for item in found)


def test_times_and_places_are_facts_of_the_run(manifest) -> None:
    attempt = manifest.training.attempts[0]
    rows = manifest.evaluation.candidates
    other = changed(
        manifest,
        training={"attempts": (attempt.model_copy(update={"started": "2026-01-01T00:00:00Z", "reasons": {}}), attempt)},
        evaluation={"candidates": (rows[0].model_copy(update={"uri": "s3://other/place"}), *rows[1:])},
    )
    found = {item.path: item.run_fact for item in compare_manifests(manifest, other)}
    assert found["evaluation.candidates[100].uri"] == "where the root was"
    assert found["training.attempts[0].started"] == found["training.attempts[1]"]
    assert None not in found.values()


def test_what_lies_beside_a_fact_is_none(manifest) -> None:
    rows = manifest.evaluation.candidates
    other = changed(
        manifest,
        training={"skipped_updates": 3, "run_hash": "0" * 64},
        evaluation={"candidates": (rows[0].model_copy(update={"score": 0.1, "sha256": "7" * 64}), *rows[1:])},
    )
    found = {item.path: item.run_fact for item in compare_manifests(manifest, other)}
    assert set(found) == {
        "training.run_hash",
        "training.skipped_updates",
        "evaluation.candidates[100].score",
        "evaluation.candidates[100].sha256",
    }
    assert set(found.values()) == {None}


def test_every_fact_names_a_part_that_there_is() -> None:
    """A key that was renamed would silently stop to be one."""
    schema = Manifest.model_json_schema()
    for place in RUN_FACTS:
        here = schema
        for key in re.sub(r"\[\*\]", ".[]", place).split("."):
            options = here.get("anyOf", [here])
            here = next(option for option in options if option.get("type") != "null")
            while "$ref" in here:
                here = schema["$defs"][here["$ref"].rsplit("/", 1)[1]]
            here = here["items"] if key == "[]" else here["properties"][key]
            while "$ref" in here:
                here = schema["$defs"][here["$ref"].rsplit("/", 1)[1]]


def test_reads_a_folder_or_its_manifest(tmp_path, manifest) -> None:
    (tmp_path / "manifest.json").write_bytes(manifest.to_bytes())
    assert read_manifest(str(tmp_path)) == read_manifest(str(tmp_path / "manifest.json")) == manifest
    with pytest.raises(NotFoundError):
        read_manifest(str(tmp_path / "gone"))
    (tmp_path / "manifest.json").write_bytes(b"[]")
    with pytest.raises(DataError, match=re.escape(str(tmp_path))):
        read_manifest(str(tmp_path))
