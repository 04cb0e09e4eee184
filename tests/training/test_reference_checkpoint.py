"""Checkpoints of the system before."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch

from hopline.errors import ConfigError, DataError
from hopline.training.reference_checkpoint import named_moments, read_reference_checkpoint
from hopline.training.reference_import import import_reference
from hopline.training.schedule import learning_rate_factor
from tests.training.reference_file import make_document, make_model, moments_by_name, reference_groups, save

LAYOUTS = {
    "query encoder with the rest": {},
    "query encoder split off, last": {"split": True},
    "query encoder split off, first": {"split": True, "encoder_first": True},
    "query encoder frozen": {"frozen": True},
}


def test_every_key_of_the_dictionary_is_read(tmp_path: Path) -> None:
    """G47: model, optimizer, scheduler, scaler, step, total_steps, config, rng_state."""
    document = make_document()
    checkpoint = read_reference_checkpoint(save(document, tmp_path / "old.pt"))
    assert checkpoint.weights.keys() == document["model"].keys()
    assert all(torch.equal(checkpoint.weights[name], tensor) for name, tensor in document["model"].items())
    assert (checkpoint.step, checkpoint.total_steps) == (3, 2500)
    assert checkpoint.scaler == document["scaler"]
    assert checkpoint.config == document["config"]
    assert checkpoint.unknown == ()


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_moments_go_to_their_parameters_by_name_from_every_layout(name: str, tmp_path: Path) -> None:
    """G52, D39: the layout is recognised by the sizes of the groups; each parameter gets its own state, to the bit."""
    model, layout = make_model(), LAYOUTS[name]
    document = make_document(model, **layout)
    checkpoint = read_reference_checkpoint(save(document, tmp_path / "old.pt"))
    found, named = named_moments(checkpoint)
    assert found == name
    expected = moments_by_name(model, document, **layout)
    assert named.keys() == expected.keys()
    assert any(parameter.startswith("query_encoder.") for parameter in expected) is not bool(layout.get("frozen"))
    for parameter, moments in named.items():
        assert moments.step == 3
        assert torch.equal(moments.exp_avg, expected[parameter]["exp_avg"]), parameter
        assert torch.equal(moments.exp_avg_sq, expected[parameter]["exp_avg_sq"]), parameter


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize(
    "changes", [(), ("training.query_encoder_lr_scale=0.1",), ("training.freeze_query_encoder=true",)], ids=str
)
def test_any_layout_can_go_on_in_any_other(name: str, changes: tuple[str, ...], tmp_path: Path) -> None:
    """G13, G52, D38, D39: split or not, frozen or not, before and after. State of parameters that are optimised no longer is
    dropped, and named; those that were frozen before begin with what Adam begins with."""
    model, layout = make_model(), LAYOUTS[name]
    document = make_document(model, **layout)
    imported = import_reference(save(document, tmp_path / "old.pt"), changes)
    known = moments_by_name(model, document, **layout)
    frozen = "training.freeze_query_encoder=true" in changes
    trained = {n: p for n, p in imported.model.named_parameters() if not (frozen and n.startswith("query_encoder."))}
    assert set(imported.optimizer.state) == set(trained.values())
    for parameter_name, parameter in trained.items():
        state = imported.optimizer.state[parameter]
        if parameter_name in known:
            assert state["step"] == 3
            assert torch.equal(state["exp_avg"], known[parameter_name]["exp_avg"])
            assert torch.equal(state["exp_avg_sq"], known[parameter_name]["exp_avg_sq"])
        else:
            assert not state["step"]
            assert not state["exp_avg"].any()
    assert set(imported.dropped_moments) == known.keys() - trained.keys()
    assert imported.moved == len(known.keys() & trained.keys())


def test_a_next_step_is_that_of_the_optimizer_before(tmp_path: Path) -> None:
    """G52, D41: weights after one more update are those that the old optimizer would have given, to the bit."""
    model = make_model()
    groups = reference_groups(model)
    imported_from = save(make_document(copy.deepcopy(model)), tmp_path / "old.pt")
    document = torch.load(imported_from, weights_only=True)
    model.load_state_dict(document["model"])
    before = torch.optim.AdamW(groups, betas=(0.9, 0.95))
    before.load_state_dict(document["optimizer"])
    imported = import_reference(imported_from, ["training.betas=[0.9,0.95]"])
    after = torch.optim.AdamW(imported.optimizer.param_groups, betas=(0.9, 0.95))
    after.load_state_dict(imported.optimizer.state_dict())
    for group in (*before.param_groups, *after.param_groups):
        group["lr"], group["fused"] = 0.01, False
    gradients = {name: torch.randn_like(parameter) for name, parameter in model.named_parameters()}
    for one, optimizer in ((model, before), (imported.model, after)):
        for name, parameter in one.named_parameters():
            parameter.grad = gradients[name].clone()
        optimizer.step()
    others = dict(imported.model.named_parameters())
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, others[name]), name


def test_the_learning_rate_is_that_of_the_schedule_at_the_restored_step(tmp_path: Path) -> None:
    """G52, D38, D41: the horizon is the config's, whatever the file's scheduler and total_steps say."""
    document = make_document() | {"step": 1500, "total_steps": 1500}
    imported = import_reference(save(document, tmp_path / "old.pt"), ["training.max_steps=3000"])
    assert imported.state.step == 1500
    training = imported.config.config.training
    factor = learning_rate_factor(
        imported.state.step,
        total_steps=training.max_steps,
        warmup_ratio=training.warmup_ratio,
        floor=training.final_learning_rate_ratio,
    )
    assert factor == pytest.approx(0.628, abs=0.001)  # not the floor, 0.1
    assert any("its schedule ran to step 1500; here it runs to training.max_steps, 3000" in n for n in imported.notes)


@pytest.mark.parametrize("key", ["optimizer", "scheduler", "scaler", "rng_state", "total_steps"])
def test_what_may_be_missing(key: str, tmp_path: Path) -> None:
    """G51: tolerant of a missing optimizer, scheduler, scaler, generator state or horizon."""
    document = make_document()
    del document[key]
    imported = import_reference(save(document, tmp_path / "old.pt"))
    assert imported.state.step == 3
    assert bool(imported.optimizer.state) is (key != "optimizer")
    assert bool(imported.state.applied_updates) is (key != "optimizer")


def test_a_head_that_was_never_updated_begins_as_adam_begins(tmp_path: Path) -> None:
    """D4: a parameter without gradients had no state; a fresh one is the same."""
    model = make_model()
    document = make_document(model, skip=("confidence.",))
    imported = import_reference(save(document, tmp_path / "old.pt"))
    state = imported.optimizer.state[imported.model.get_parameter("confidence.norm.weight")]
    assert (float(state["step"]), float(state["exp_avg"].abs().sum())) == (0, 0)
    assert float(imported.optimizer.state[imported.model.get_parameter("entities.out.weight")]["step"]) == 3


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "module._orig_mod."])
def test_the_prefixes_of_wrappers_are_tolerated(prefix: str, tmp_path: Path) -> None:
    """G51: weights of a wrapped model."""
    document = make_document()
    plain = document["model"]
    document["model"] = {f"{prefix}{name}": tensor for name, tensor in plain.items()}
    imported = import_reference(save(document, tmp_path / "old.pt"))
    assert all(torch.equal(tensor, plain[name]) for name, tensor in imported.model.state_dict().items())


def test_the_link_head_is_read_off_the_weights(tmp_path: Path) -> None:
    """G10, D18, D39: with link_mlp among the weights it is the network, whatever the config calls it."""
    document = make_document(make_model(link_head="mlp"))
    imported = import_reference(save(document, tmp_path / "old.pt"))
    assert imported.config.config.training.link_head == "mlp"
    assert imported.model.link_mlp is not None


def test_half_precision_weights_become_float32(tmp_path: Path) -> None:
    document = make_document()
    document["model"] = {name: tensor.bfloat16() for name, tensor in document["model"].items()}
    imported = import_reference(save(document, tmp_path / "old.pt"))
    assert {parameter.dtype for parameter in imported.model.parameters()} == {torch.float32}


def _swap(groups: list[dict[str, Any]]) -> None:
    groups[0]["params"], groups[1]["params"] = groups[1]["params"], groups[0]["params"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d["optimizer"]["param_groups"].pop(), "found groups of [66] parameters"),
        (
            lambda d: _swap(d["optimizer"]["param_groups"]),
            "which fit none of the known layouts (query encoder with the rest",
        ),
        (lambda d: d["optimizer"]["state"].update({0: {**d["optimizer"]["state"][1]}}), "and its moments"),
        (lambda d: d["optimizer"]["state"].update({999: {}}), "fit none of the known layouts"),
        (lambda d: d["optimizer"]["param_groups"][0]["params"].append(1), "a parameter is in two groups"),
        (lambda d: d.update(optimizer=[1, 2]), "optimizer: no state of an optimizer of torch"),
        (lambda d: d["optimizer"]["state"][0]["exp_avg"].fill_(float("nan")), "are not finite"),
        (
            lambda d: d["model"]["entities.out.bias"].fill_(float("inf")),
            "model.entities.out.bias: holds numbers that are not",
        ),
        (lambda d: d["model"].pop("entities.out.bias"), "1 are missing (entities.out.bias)"),
        (lambda d: d["model"].update(extra=torch.zeros(2)), "1 are unknown (extra)"),
        (lambda d: d["model"].update({"entities.out.bias": torch.zeros(2)}), "found the shape [2], expected [1]"),
        (lambda d: d["model"].update({"entities.out.bias": "zero"}), "found str, expected a tensor"),
        (lambda d: d["model"].pop("count.inner.2.weight"), "model.count.inner.2.weight: found no such tensor"),
        (lambda d: d.update(step=-1), "step: found -1, expected a count of steps"),
        (lambda d: d.update(step="3"), "step: found 3, expected a count of steps"),
        (lambda d: d.pop("step"), "expected a dictionary with the keys config, model,"),
        (lambda d: d.update(config=[]) or d.update(config="x"), "config: found str, expected a dictionary"),
        (lambda d: d.update(model={}), "model: found dict, expected tensors by name"),
    ],
)
def test_what_does_not_fit_is_one_clear_line(change: Any, message: str, tmp_path: Path) -> None:
    """G52: an unknown layout is an error that tells the sizes; so is every other misfit, and nothing is half imported."""
    document = make_document()
    document["optimizer"]["state"] = {
        place: {key: value.clone() for key, value in entry.items()}
        for place, entry in document["optimizer"]["state"].items()
    }
    change(document)
    with pytest.raises(DataError) as caught:
        import_reference(save(document, tmp_path / "old.pt"))
    text = str(caught.value)
    assert message in text
    assert text.startswith(str(tmp_path / "old.pt"))
    assert "\n" not in text


def test_a_file_that_is_no_dictionary(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="found Tensor, expected a dictionary"):
        read_reference_checkpoint(save(torch.zeros(2), tmp_path / "old.pt"))


def test_an_unknown_key_is_told(tmp_path: Path) -> None:
    imported = import_reference(save(make_document() | {"ema": torch.zeros(2)}, tmp_path / "old.pt"))
    assert "the file's key 'ema' is not known and was left out" in imported.notes


def test_a_value_that_is_not_allowed_names_its_key(tmp_path: Path) -> None:
    document = make_document()
    document["config"] = {**document["config"], "training": {"learning_rate": -1}}
    path = save(document, tmp_path / "old.pt")
    with pytest.raises(ConfigError, match=r"config of .*old.pt: training.learning_rate: found -1"):
        import_reference(path)
    assert import_reference(path, ["training.learning_rate=0.5"]).config.config.training.learning_rate == 0.5
