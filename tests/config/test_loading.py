"""Config files, overrides and their errors."""

from __future__ import annotations

from pathlib import Path

import pytest

from hopline.config import GraphConfig, TrainingConfig, load_config, resolve_config, section_hash
from hopline.errors import ConfigError


def _resolve(text: str, *overrides: str) -> GraphConfig:
    return resolve_config(text, source="c.yaml", overrides=overrides).config


def test_defaults_and_overrides_with_origin() -> None:
    resolved = resolve_config(
        "name: m\ntraining: {learning_rate: 2e-3, betas: [0.8, 0.9]}\n",
        source="c.yaml",
        overrides=["training.max_steps=20", "publish.gate.minimum={link.mrr: 0.5}"],
    )
    assert resolved.config.training.learning_rate == 0.002
    assert resolved.config.training.betas == (0.8, 0.9)
    assert resolved.config.training.max_steps == 20
    assert resolved.config.publish.gate.minimum == {"link.mrr": 0.5}
    assert [(o.key, o.value, o.origin) for o in resolved.overrides] == [
        ("training.max_steps", 20, "--set"),
        ("publish.gate.minimum", {"link.mrr": 0.5}, "--set"),
    ]


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("training.lerning_rate=1", "unknown key 'training.lerning_rate'; did you mean 'training.learning_rate'?"),
        ("traning.max_steps=1", "unknown key 'traning'; did you mean 'training'?"),
        ("training.max_steps=abc", "training.max_steps: found 'abc', expected integer"),
        ("training.max_steps=1.5", "training.max_steps: found 1.5, expected integer"),
        ("training.max_steps=0", "training.max_steps: found 0, expected greater than or equal to 1"),
        ("training.deterministic=1", "training.deterministic: found 1, expected boolean"),
        ("training.link_head=dot", "training.link_head: found 'dot', expected 'cosine' or 'mlp'"),
        ("loss.weights.node=.inf", "loss.weights.node: found inf, expected a finite number"),
        ("dataset.min_hops=5", "dataset: min_hops is 5, above max_hops 3; swap or raise one"),
        ("model.transductive=true", "model.transductive needs dataset.entities: identity, found anonymous"),
        ("training.use_fsdp=true", "'training.use_fsdp' is now 'training.parallelism: none|ddp|fsdp'; write that"),
        ("training.init_from=s3://b/x", "training.init_from: found 's3://b/x', expected <URI of a candidate"),
        ("name=../x", "name: expected 1 to 63 letters"),
        ("training=3", "training: found 3, expected an object"),
        ("training.max_steps", "expected key.path=value"),
        ("name.x=1", "'name' is no section but 'm'"),
        ("training.curriculum=[{until_step: 9}, {until_step: 3}]", "until_step must rise"),
    ],
)
def test_errors_name_key_found_and_expected(override: str, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        _resolve("name: m\n", override)
    message = str(caught.value)
    assert expected in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("name: m\nname: n\n", "c.yaml, line 2: key 'name' is given twice"),
        ("- 1\n", "c.yaml: expected a mapping with the key 'name', found list"),
        ("{}", "c.yaml: key 'name' is missing; add it"),
        ("name: [\n", "c.yaml, line 2:"),
        ("name: !!python/object/apply:os.getcwd []\n", "c.yaml, line 1:"),
    ],
)
def test_broken_files_are_one_line_errors(text: str, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        _resolve(text)
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_and_a_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml: no such config file"):
        load_config(tmp_path / "none.yaml")
    with pytest.raises(ConfigError, match="cannot be read as a config file"):
        load_config(tmp_path)


def test_quoted_scalars_stay_text() -> None:
    assert _resolve("name: '1e5'\n").name == "1e5"


def test_every_key_is_documented() -> None:
    def undocumented(schema: dict, path: str) -> list[str]:
        return [
            f"{path}.{name}"
            for name, entry in schema.get("properties", {}).items()
            if not entry.get("description") and "$ref" not in entry
        ]

    schema = GraphConfig.model_json_schema()
    missing = undocumented(schema, "config")
    for name, definition in schema["$defs"].items():
        assert definition.get("description"), name
        missing += undocumented(definition, name)
    assert missing == []


def test_section_hash_fills_in_defaults_and_leaves_out_what_changes_nothing() -> None:
    base = TrainingConfig()
    assert section_hash(base) == section_hash(TrainingConfig(max_steps=base.max_steps))
    assert section_hash(base) != section_hash(TrainingConfig(max_steps=base.max_steps + 1))
    exclude = frozenset({"log_every"})
    assert section_hash(base, exclude=exclude) == section_hash(TrainingConfig(log_every=77), exclude=exclude)


def test_the_config_round_trips() -> None:
    config = _resolve("name: m\n", "training.curriculum=[{until_step: 9, kinds: [link]}]")
    assert GraphConfig.model_validate_json(config.model_dump_json()) == config


@pytest.mark.parametrize("path", sorted((Path(__file__).parents[2] / "configs").glob("*.yaml")), ids=lambda p: p.name)
def test_shipped_configs_are_valid(path: Path) -> None:
    assert load_config(path).config.name


def test_aliases_that_expand_without_end_are_refused() -> None:
    """A small file must not take all memory: each level names the one below ten times."""
    levels = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    levels += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 9)]
    with pytest.raises(ConfigError, match=r"c\.yaml: its aliases expand to more than 100000 values"):
        _resolve("\n".join(levels))
    with pytest.raises(ConfigError, match="recursive"):
        _resolve("name: &a [*a]")
