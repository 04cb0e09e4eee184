"""Checkpoints in the form of the system before, made the way that its trainer made them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from hopline.config import ModelConfig
from hopline.model import GraphModel

RELATIONS = 5
SIZES = {"hidden_dim": 8, "layers": 2, "max_hops": 4, "max_count": 6}
CONFIG = {
    "model_version": "reasoner-7",
    "hidden_dim": 8,
    "max_count": 6,
    "num_relations": RELATIONS,
    "on_policy_selection": True,
    "pat": {"heads": 4, "temperature": 0.5, "gate": "soft"},
    "loss": {"weights": {"link": 0.7, "answer": 2.0}, "smoothing": 0.1},
    "training": {
        "learning_rate": 0.003,
        "weight_decay": 0.02,
        "warmup_ratio": 0.1,
        "max_steps": 2500,
        "batch_size": 32,
        "gradient_accumulation": 2,
        "backward_chunk_size": 8,
        "precision": "bf16",
        "grad_clip": 0.5,
        "evaluation_every": 100,
        "checkpoint_every": 50,
        "seed": 3,
        "deterministic": False,
        "use_fsdp": False,
        "freeze_query_encoder": False,
        "query_encoder_lr_scale": 1.0,
        "link_head": "dot",
        "batched_forward": True,
    },
}


def make_model(**options: Any) -> GraphModel:
    """A small model with weights that are not those of a fresh one."""
    sizes = ModelConfig.model_validate({**SIZES, "pat": {"heads": 4, "temperature": 0.5}})
    torch.manual_seed(5)
    return GraphModel(sizes, num_relations=RELATIONS, **options)


def reference_groups(
    model: GraphModel, *, split: bool = False, frozen: bool = False, encoder_first: bool = False
) -> Any:
    """Parameter groups of the trainer before: decayed and undecayed, the query encoder's apart where it is split."""
    encoder = [(n, p) for n, p in model.named_parameters() if n.startswith("query_encoder.")]
    others = [(n, p) for n, p in model.named_parameters() if not n.startswith("query_encoder.")]
    parts = [others] if frozen else [list(model.named_parameters())]
    if split and not frozen:
        parts = [encoder, others] if encoder_first else [others, encoder]
    groups = []
    for place, part in enumerate(parts):
        flat = [p for n, p in part if p.ndim <= 1 or n.endswith((".threshold", ".scale"))]
        deep = [p for n, p in part if p.ndim > 1 and not n.endswith((".threshold", ".scale"))]
        lr = 0.003 * (0.1 if split and place == 0 else 1.0)
        groups += [{"params": deep, "lr": lr, "weight_decay": 0.02}, {"params": flat, "lr": lr, "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]


def train_a_little(model: GraphModel, optimizer: torch.optim.Optimizer, steps: int, skip: tuple[str, ...] = ()) -> None:
    """Updates with random gradients; parameters whose names begin with ``skip`` have none."""
    for _ in range(steps):
        for name, parameter in model.named_parameters():
            parameter.grad = None if name.startswith(skip) else torch.randn_like(parameter)
        optimizer.step()


def make_document(
    model: GraphModel | None = None,
    *,
    split: bool = False,
    frozen: bool = False,
    encoder_first: bool = False,
    skip: tuple[str, ...] = ("\0",),
    config: Mapping[str, Any] = CONFIG,
) -> dict[str, Any]:
    """The dictionary, after three steps of AdamW."""
    model = model or make_model()
    groups = reference_groups(model, split=split, frozen=frozen, encoder_first=encoder_first)
    optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.95))
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0 / (step + 1))
    train_a_little(model, optimizer, 3, skip)
    return {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "scheduler": scheduler.state_dict(),
        "scaler": {
            "scale": 1024.0,
            "growth_factor": 2.0,
            "backoff_factor": 0.5,
            "growth_interval": 2000,
            "_growth_tracker": 3,
        },
        "step": 3,
        "total_steps": 2500,
        "config": dict(config),
        "rng_state": torch.get_rng_state(),
    }


def moments_by_name(
    model: GraphModel, document: Mapping[str, Any], **layout: bool
) -> dict[str, dict[str, torch.Tensor]]:
    """What each parameter's Adam state is, worked out from the groups and not from their sizes."""
    names = {parameter: name for name, parameter in model.named_parameters()}
    order = [names[parameter] for group in reference_groups(model, **layout) for parameter in group["params"]]
    return {order[place]: entry for place, entry in document["optimizer"]["state"].items()}


def save(document: Any, path: Path) -> Path:
    torch.save(document, path)
    return path
