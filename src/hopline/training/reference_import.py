"""From a checkpoint of the system before to a training of this one: model, optimizer and loop state, ready to be saved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from hopline.config import GraphConfig, ResolvedConfig
from hopline.errors import DataError
from hopline.model import GraphModel
from hopline.training.optimizer import build_optimizer
from hopline.training.reference_checkpoint import (
    Moments,
    ReferenceCheckpoint,
    named_moments,
    read_reference_checkpoint,
)
from hopline.training.reference_config import Architecture, map_reference_config, read_architecture
from hopline.training.state import TrainingState

__all__ = ["ImportedTraining", "import_reference"]


@dataclass(frozen=True, slots=True, eq=False)
class ImportedTraining:
    """A training as a file of the system before left it.

    Attributes:
        config: its config in our terms.
        model, optimizer, state: the training, on the CPU.
        architecture: the sizes of the vocabulary that the model needs.
        layout: how the optimizer's groups were laid out; None without an optimizer.
        moved: parameters whose moments were taken over.
        dropped_moments: parameters whose moments were dropped, because they are not optimised any more.
        dropped_keys: config keys without a place here.
        notes: what else a person should know, one sentence each.
    """

    config: ResolvedConfig
    model: GraphModel
    optimizer: torch.optim.Optimizer
    state: TrainingState
    architecture: Architecture
    layout: str | None
    moved: int
    dropped_moments: tuple[str, ...]
    dropped_keys: tuple[str, ...]
    notes: tuple[str, ...]


def import_reference(path: Path, overrides: Sequence[str] = ()) -> ImportedTraining:
    """Read a checkpoint and make the training of it. Nothing that the file may carry is run.

    Weights and moments stay mapped from the file where their type is float32: they are not copied. Learning rate, decay and
    schedule are those of the config, at the step that the file tells.

    Args:
        path: the file.
        overrides: ``key.path=value`` for the config, where the file's value is wrong or missing.

    Raises:
        NotFoundError: there is no such file.
        DataError: it is no such checkpoint, or its weights are not of this architecture.
        ConfigError: its config, or an override, has a value that is not allowed.
    """
    checkpoint = read_reference_checkpoint(path)
    architecture = read_architecture(checkpoint.weights, source=str(path))
    mapped = map_reference_config(checkpoint.config, architecture, source=f"config of {path}", overrides=overrides)
    config = mapped.resolved.config
    model = _model(config, architecture, checkpoint.weights, path)
    if config.training.freeze_query_encoder:
        model.query_encoder.requires_grad_(False)
    optimizer = build_optimizer(model, config.training)
    trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    layout, known = named_moments(checkpoint)
    moved = {name: moments for name, moments in known.items() if name in trained}
    if moved:
        _give_moments(optimizer, trained, moved)
    updates = max((moments.step for moments in moved.values()), default=0)
    return ImportedTraining(
        config=mapped.resolved,
        model=model,
        optimizer=optimizer,
        state=TrainingState(step=checkpoint.step, applied_updates=int(updates), scaler=dict(checkpoint.scaler)),
        architecture=architecture,
        layout=layout,
        moved=len(moved),
        dropped_moments=tuple(sorted(known.keys() - moved.keys())),
        dropped_keys=mapped.dropped,
        notes=_notes(checkpoint, config),
    )


def _model(config: GraphConfig, sizes: Architecture, weights: Mapping[str, Tensor], path: Path) -> GraphModel:
    """The model with these weights. Raises DataError if they are not its own."""
    with torch.device("meta"):
        model = GraphModel(
            config.model,
            num_relations=sizes.num_relations,
            num_entities=sizes.num_entities,
            link_head=config.training.link_head,
            link_logit_scale=config.training.link_logit_scale,
        )
    expected = {name: tensor.shape for name, tensor in model.state_dict().items()}
    missing, unknown = sorted(expected.keys() - weights.keys()), sorted(weights.keys() - expected.keys())
    if missing or unknown:
        parts = [
            f"{len(names)} {what} ({', '.join(names[:3])}{', ...' if len(names) > 3 else ''})"
            for what, names in (("are missing", missing), ("are unknown", unknown))
            if names
        ]
        raise DataError(
            f"{path}: model: of its tensors {' and '.join(parts)}; expected the {len(expected)} names of this version's "
            "model: set the keys that the file's config does not tell with --set"
        )
    for name, shape in expected.items():
        if weights[name].shape != shape:
            raise DataError(
                f"{path}: model.{name}: found the shape {list(weights[name].shape)}, expected {list(shape)}; set the keys "
                "that the file's config does not tell with --set"
            )
    model.load_state_dict({name: tensor.float() for name, tensor in weights.items()}, assign=True)
    return model


def _give_moments(
    optimizer: torch.optim.Optimizer, trained: Mapping[str, torch.nn.Parameter], moved: Mapping[str, Moments]
) -> None:
    """Give each parameter its own. One that was never updated gets what Adam would begin with."""
    for name, parameter in trained.items():
        known = moved.get(name) or Moments(0.0, torch.zeros_like(parameter), torch.zeros_like(parameter))
        optimizer.state[parameter] = {
            "step": torch.tensor(known.step),
            "exp_avg": known.exp_avg,
            "exp_avg_sq": known.exp_avg_sq,
        }


def _notes(checkpoint: ReferenceCheckpoint, config: GraphConfig) -> tuple[str, ...]:
    notes = []
    if checkpoint.optimizer is None:
        notes.append("the file holds no optimizer: its moments begin anew")
    horizon = checkpoint.total_steps
    if horizon is not None and horizon != config.training.max_steps:
        notes.append(
            f"its schedule ran to step {horizon}; here it runs to training.max_steps, {config.training.max_steps}"
        )
    training = checkpoint.config.get("training")
    if isinstance(training, dict) and "batch_size" in training:
        notes.append(
            f"training.batch_size {config.training.batch_size} counted the examples of one process; here it counts those of "
            "all together"
        )
    notes += [f"the file's key '{key}' is not known and was left out" for key in checkpoint.unknown]
    return tuple(notes)
