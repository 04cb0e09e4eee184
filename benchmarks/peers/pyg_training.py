"""The twelve losses with torch-geometric's scatter, and the step as a Lightning module."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import lightning
import torch
from torch import Tensor
from torch.nn import functional as F
from torch_geometric.data import Batch
from torch_geometric.utils import scatter

from benchmarks.peers.pyg_data import Rows, make_loader
from benchmarks.peers.pyg_model import PygModel, count, log_sum_exp
from hopline.config import GraphConfig
from hopline.graph import ANSWER_MODES, KINDS, STATUS_INDEX, AnswerMode, QueryKind

MODE = {mode: index for index, mode in enumerate(ANSWER_MODES)}
SUPPORTED, CONTRADICTED = STATUS_INDEX["supported"], STATUS_INDEX["contradicted"]
LINK = KINDS.index(QueryKind.LINK)


def losses(batch: Batch, out: SimpleNamespace, config: GraphConfig) -> dict[str, Tensor]:
    """Each component for each row."""
    G, N = batch.num_graphs, batch.num_nodes
    rows = batch.batch
    source, target = batch.edge_index
    edge_graph = rows[source]
    states = F.normalize(out.node_states, dim=-1)
    other = _corrupt(batch)
    usable = (other >= 0).float()
    joined = (states[source] * states[target]).sum(-1)
    apart = (states[source] * states[other.clamp(min=0)]).sum(-1)
    cosines = config.training.link_logit_scale * torch.cat([joined, apart])
    labels = torch.cat([torch.ones_like(joined), torch.zeros_like(apart)])
    link = F.binary_cross_entropy_with_logits(cosines, labels, reduction="none")
    weight, both = torch.cat([torch.ones_like(usable), usable]), torch.cat([edge_graph, edge_graph])

    gold = torch.zeros(N)
    gold[batch.answer_index] = 1.0
    looked_at = _answer_weight(batch)
    answers = scatter(gold * looked_at, rows, dim_size=G, reduce="sum")
    answer = F.binary_cross_entropy_with_logits(out.entity_logits, gold, reduction="none") * looked_at
    answer = scatter(answer, rows, dim_size=G, reduce="sum") / (1 + answers)
    rivals = log_sum_exp(out.entity_logits, rows, G, looked_at * (1 - gold))
    ranked = F.softplus(rivals[rows] - out.entity_logits) * gold * looked_at
    ranked = scatter(ranked, rows, dim_size=G, reduce="sum") / answers.clamp(min=1) * (batch.kind == LINK)

    asked = batch.answer_relation[out.relation_graph]
    relation = F.cross_entropy(out.relation_logits, asked.clamp(min=0), reduction="none") * (asked >= 0)
    counted = (batch.answer_mode == MODE[AnswerMode.COUNT]) | (batch.answer_mode == MODE[AnswerMode.AGGREGATE])
    counts = batch.answer_count.clamp(max=out.count_logits.shape[1] - 1)
    margin = out.selection_logits - out.selection_threshold[out.path_graph]
    path = F.binary_cross_entropy_with_logits(margin, batch.path_label.float(), reduction="none")
    next_hop = F.cross_entropy(out.next_hop_logits, out.hop_labels, reduction="none")
    hop = F.cross_entropy(out.hop_relation_logits, out.hop_labels, reduction="none")
    ahead = out.support_logit[1:] - out.support_logit[:-1]
    score = _score(batch, out, gold, counts, asked)
    verified = (batch.status == SUPPORTED).float()
    return {
        "node": scatter(F.relu(0.5 - joined + apart) * usable, edge_graph, dim_size=G, reduce="mean"),
        "link": scatter(link * weight, both, dim_size=G, reduce="sum")
        / scatter(weight, both, dim_size=G, reduce="sum").clamp(min=1e-6),
        "next_hop": scatter(next_hop, out.hop_graph, dim_size=G, reduce="mean"),
        "relation": scatter(hop, out.hop_graph, dim_size=G, reduce="mean")
        + scatter(relation, out.relation_graph, dim_size=G, reduce="sum"),
        "path": scatter(path, out.path_graph, dim_size=G, reduce="mean"),
        "pat": F.relu(config.loss.pat_margin - out.pat_positive + out.pat_negative) * out.pat_mask,
        "answer": answer + ranked,
        "verification": F.binary_cross_entropy_with_logits(out.support_logit, verified, reduction="none"),
        "contradiction": F.cross_entropy(out.contradiction_logits, batch.status, reduction="none"),
        "count": F.cross_entropy(out.count_logits, counts, reduction="none") * counted,
        "confidence": F.binary_cross_entropy_with_logits(out.confidence_logit, score, reduction="none"),
        "pair_margin": F.pad(F.relu(config.loss.pair_margin - ahead) * batch.is_twin[1:], (0, 1)),
    }


def _corrupt(batch: Batch) -> Tensor:
    """For each edge another end in the same graph that no edge joins to its source; -1 where the one that was drawn is."""
    sizes, starts = (batch.ptr[1:] - batch.ptr[:-1]), batch.ptr[:-1]
    graph = batch.batch[batch.edge_index[0]]
    other = starts[graph] + (torch.rand(len(graph)) * sizes[graph]).long()
    source, N = batch.edge_index[0], batch.num_nodes
    known = (batch.message_index[0] * N + batch.message_index[1]).unique()
    drawn = source * N + other
    place = torch.searchsorted(known, drawn).clamp(max=len(known) - 1)
    return torch.where((known[place] == drawn) | (other == source), -1, other)


def _answer_weight(batch: Batch) -> Tensor:
    mode = batch.answer_mode
    everywhere = (mode != MODE[AnswerMode.BOOLEAN]) & (mode != MODE[AnswerMode.RELATION])
    second = torch.zeros(batch.num_nodes, dtype=torch.bool)
    second[batch.anchor_index] = batch.anchor_slot == 1
    second &= (mode == MODE[AnswerMode.BOOLEAN])[batch.batch]
    return ((everywhere[batch.batch] | second) & (batch.status != CONTRADICTED)[batch.batch]).float()


@torch.no_grad()
def _score(batch: Batch, out: SimpleNamespace, gold: Tensor, counts: Tensor, asked: Tensor) -> Tensor:
    """How good each row's own answer is, what confidence is trained on."""
    G, rows = batch.num_graphs, batch.batch
    supported = out.contradiction_logits.argmax(1) == SUPPORTED
    chosen = ((out.entity_logits > 0) & supported[rows]).float()
    hits, predicted, true = scatter(torch.stack([gold * chosen, chosen, gold], 1), rows, dim_size=G).unbind(1)
    score = torch.where(predicted + true == 0, 1.0, 2 * hits / (predicted + true).clamp(min=1))
    best = scatter(out.entity_logits.masked_fill(gold == 0, -1e9), rows, dim_size=G, reduce="max")
    rival = scatter(out.entity_logits.masked_fill(gold > 0, -1e9), rows, dim_size=G, reduce="max")
    answered = count(batch.answer_index_batch, G) > 0
    score = torch.where(batch.kind == LINK, torch.where(answered, best > rival, ~supported).float(), score)
    counted = (out.count_logits.argmax(1) == counts).float()
    right = (gold == chosen).float()[batch.anchor_index] * (batch.anchor_slot == 1)
    boolean = scatter(right, batch.anchor_slot_batch, dim_size=G)
    relation = (~supported).float()
    relation[out.relation_graph] = torch.where(
        asked >= 0, (out.relation_logits.argmax(1) == asked).float(), relation[out.relation_graph]
    )
    for mode, value in ((AnswerMode.COUNT, counted), (AnswerMode.AGGREGATE, counted), (AnswerMode.BOOLEAN, boolean),
                        (AnswerMode.RELATION, relation)):  # fmt: skip
        score = torch.where(batch.answer_mode == MODE[mode], value, score)
    return score


class Reasoner(lightning.LightningModule):
    """The step: forward, losses, AdamW with warm-up and cosine."""

    def __init__(self, model: PygModel, config: GraphConfig) -> None:
        super().__init__()
        self.model, self.config = model, config
        self.ends: list[float] = []

    def training_step(self, batch: Batch, _: int) -> Tensor:
        parts = losses(batch, self.model(batch), self.config)
        weights = self.config.loss.weights
        return torch.stack([getattr(weights, name) * value.mean() for name, value in parts.items()]).sum()

    def on_train_batch_end(self, *_: Any) -> None:
        self.ends.append(time.perf_counter())

    def configure_optimizers(self) -> Any:
        training = self.config.training
        optimizer = torch.optim.AdamW(
            self.parameters(), training.learning_rate, training.betas, weight_decay=training.weight_decay, fused=True
        )
        total = training.max_steps
        scale = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: 0.1 + 0.45 * (1 + math.cos(math.pi * min(step / total, 1)))
        )
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scale, "interval": "step"}}


def train(rows: Rows, batches: Sequence[Sequence[int]], reasoner: Reasoner, workers: int) -> list[float]:
    """Seconds of each step but the first, logging and checkpoints off."""
    trainer = lightning.Trainer(
        accelerator="cpu", devices=1, max_steps=len(batches), logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, gradient_clip_val=reasoner.config.training.grad_clip,
        use_distributed_sampler=False,
    )  # fmt: skip
    reasoner.ends.clear()
    trainer.fit(reasoner, make_loader(rows, batches, workers))
    return [b - a for a, b in zip(reasoner.ends[:-1], reasoner.ends[1:], strict=True)]
