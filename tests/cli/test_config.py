"""``hopline config`` and ``hopline version``."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import yaml

import hopline as package
from hopline.config import GraphConfig, load_config, section_hash
from tests.stages.workbench import CONFIG, hopline

SECTIONS = ["dataset", "model", "loss", "training", "evaluation", "publish", "cluster"]


def test_show_fills_in_every_default() -> None:
    done = hopline("config", "show", "-c", CONFIG)
    assert (done.code, done.stderr) == (0, "")
    shown = yaml.safe_load(done.stdout)
    assert list(shown) == ["name", *SECTIONS]
    assert shown == load_config(CONFIG).config.to_dict()
    assert shown["training"]["max_steps"] == 6
    assert shown["training"]["patience"] is None


def test_what_is_shown_is_a_config_with_the_same_meaning(tmp_path: Path) -> None:
    copy = tmp_path / "copy.yaml"
    copy.write_text(hopline("config", "show", "-c", CONFIG, "--set", "training.learning_rate=3e-4").stdout)
    first = hopline("config", "validate", "-c", CONFIG, "--set", "training.learning_rate=0.0003", "--json").result
    assert hopline("config", "validate", "-c", copy, "--json").result == first


def test_show_as_json_is_one_object() -> None:
    assert hopline("config", "show", "-c", CONFIG, "--json").result == load_config(CONFIG).config.to_dict()


def test_validate_prints_the_hash_of_each_section() -> None:
    config = load_config(CONFIG).config
    hashes = {name: section_hash(getattr(config, name)) for name in SECTIONS}
    assert hopline("config", "validate", "-c", CONFIG, "--json").result == {
        "valid": True,
        "name": "tiny",
        "sections": hashes,
    }
    lines = hopline("config", "validate", "-c", CONFIG).stdout.splitlines()
    assert lines[0] == f"{CONFIG}: valid, model tiny"
    assert [tuple(line.split()) for line in lines[1:]] == list(hashes.items())


def test_an_override_changes_the_hash_of_its_section_alone() -> None:
    before = hopline("config", "validate", "-c", CONFIG, "--json").result["sections"]
    after = hopline("config", "validate", "-c", CONFIG, "--json", "--set", "loss.weights.link=0").result["sections"]
    assert [name for name in SECTIONS if before[name] != after[name]] == ["loss"]


@pytest.mark.parametrize("command", ["show", "validate"])
@pytest.mark.parametrize(
    ("one", "said"),
    [
        ("training.max_stepz=3", "unknown key 'training.max_stepz'; did you mean 'training.max_steps'?"),
        ("trainning.max_steps=3", "unknown key 'trainning'; did you mean 'training'?"),
        ("training.max_steps=soon", "training.max_steps: found 'soon', expected"),
        ("training.max_steps.x=1", "'max_steps' is no section but"),
        ("=1", "expected key.path=value"),
        ("model.transductive=true", "model.transductive needs dataset.entities: identity"),
    ],
)
def test_a_mistake_is_one_line(command: str, one: str, said: str) -> None:
    assert said in hopline("config", command, "-c", CONFIG, "--set", one).error


def keys(schema: dict[str, Any], node: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every key of a schema with its own description."""
    for name, field in node.get("properties", {}).items():
        yield f"{path}{name}", field
        reference = field.get("$ref") or (field.get("allOf") or [{}])[0].get("$ref")
        if reference:
            yield from keys(schema, schema["$defs"][reference.rpartition("/")[2]], f"{path}{name}.")


def test_the_schema_says_what_every_key_means() -> None:
    done = hopline("config", "schema")
    schema = json.loads(done.stdout)
    assert done.code == 0
    assert schema == GraphConfig.model_json_schema()
    found = dict(keys(schema, schema))
    assert {"name", "training.learning_rate", "publish.gate.minimum", "dataset.examples.test"} <= set(found)
    for name, field in found.items():
        assert field.get("description") or "$ref" in field, f"{name} is not documented"


def test_version_names_what_it_runs_on() -> None:
    expected = {
        "hopline": package.__version__,
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in ("torch", "numpy", "pyarrow", "kfp")},
    }
    assert hopline("version", "--json").result == expected
    assert hopline("version").stdout.splitlines() == [f"{name} {number}" for name, number in expected.items()]


def test_version_leaves_out_what_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        if name == "kfp":
            raise metadata.PackageNotFoundError(name)
        return "1.0"

    monkeypatch.setattr(metadata, "version", version)
    assert list(hopline("version", "--json").result) == ["hopline", "python", "torch", "numpy", "pyarrow"]
