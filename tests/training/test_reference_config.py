"""The config of the system before."""

from __future__ import annotations

import pytest
import torch

from hopline.errors import ConfigError, DataError
from hopline.training.reference_config import MappedConfig, map_reference_config, read_architecture
from tests.training.reference_file import CONFIG, RELATIONS, make_model


def mapped(config: object = CONFIG, *overrides: str, **options: object) -> MappedConfig:
    architecture = read_architecture(make_model(**options).state_dict(), source="old.pt")
    return map_reference_config(config, architecture, source="config of old.pt", overrides=overrides)


def test_every_key_that_exists_here_keeps_its_value() -> None:
    """G51: the keys of the trainer before, under their names of today."""
    config = mapped().resolved.config
    told = CONFIG["training"]
    same = set(told) - {"use_fsdp", "link_head", "batched_forward"}
    assert {key: getattr(config.training, key) for key in same} == {key: told[key] for key in same}
    assert config.training.parallelism == "none"
    assert config.training.link_head == "cosine"  # D18: anything that was not mlp meant cosine
    assert (config.model.pat.heads, config.model.pat.temperature) == (4, 0.5)
    assert (config.loss.weights.link, config.loss.weights.answer) == (0.7, 2.0)
    assert (config.model.on_policy_selection, config.model.model_version, config.name) == (
        True,
        "reasoner-7",
        "reasoner-7",
    )


def test_what_has_no_place_is_listed() -> None:
    assert mapped().dropped == (
        "loss.smoothing",
        "num_relations (the vocabulary of the dataset decides)",
        "pat.gate",
        "training.batched_forward (every forward pass is batched)",
    )


def test_fsdp_is_a_parallelism_now() -> None:
    assert mapped({"training": {"use_fsdp": True}}).resolved.config.training.parallelism == "fsdp"


def test_the_sizes_are_read_off_the_weights() -> None:
    """The config before told few of them, and weights cannot be wrong about their own shapes."""
    architecture = read_architecture(make_model().state_dict(), source="old.pt")
    assert (architecture.num_relations, architecture.num_entities) == (RELATIONS, 0)
    model = mapped({"hidden_dim": 512}).resolved.config.model
    assert (model.hidden_dim, model.layers, model.max_hops, model.max_count) == (8, 2, 4, 6)
    assert mapped(link_head="mlp").resolved.config.training.link_head == "mlp"


def test_a_version_that_can_be_no_name_gives_another() -> None:
    assert mapped({"model_version": "reasoner seven / final"}).resolved.config.name == "imported"
    assert mapped({}, "name=mine").resolved.config.name == "mine"


def test_overrides_win() -> None:
    config = mapped(CONFIG, "training.max_steps=9", "model.dropout=0.25").resolved
    assert (config.config.training.max_steps, config.config.model.dropout) == (9, 0.25)
    assert [override.key for override in config.overrides] == ["training.max_steps", "model.dropout"]


def test_weights_of_another_architecture_are_refused() -> None:
    with pytest.raises(DataError, match=r"old.pt: model.query_encoder.position.weight: found no such tensor"):
        read_architecture({"encoder.weight": torch.zeros(2, 2)}, source="old.pt")
    with pytest.raises(DataError, match=r"found the shape \[2\], expected 2 dimensions"):
        read_architecture({"query_encoder.position.weight": torch.zeros(2)}, source="old.pt")


def test_a_config_that_is_no_plain_value_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"config of old.pt: holds what is no plain value"):
        mapped({"training": {"learning_rate": torch.zeros(2)}})
