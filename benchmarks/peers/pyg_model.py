"""The model as one writes it with torch-geometric: GINE layers, and its scatter and softmax for everything by segments.

Heads, walk and signs of conflict do what Hopline's do, in plain operations and with the same widths; only the messages
differ, because GINE's are ``relu(h + relation)``.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch_geometric.data import Batch
from torch_geometric.nn import GINEConv
from torch_geometric.utils import scatter, softmax

from hopline.config import ModelConfig
from hopline.graph import ANSWER_MODES, AnswerMode
from hopline.model.heads import ConfidenceHead, CountHead, EdgeHead, EvidenceTrunk, StepHead

SIGNALS = 14 + len(ANSWER_MODES)
WALK_FEATURES = 12


def count(index: Tensor, segments: int) -> Tensor:
    """How many elements each segment has."""
    return scatter(torch.ones_like(index), index, dim_size=segments, reduce="sum")


def log_sum_exp(values: Tensor, index: Tensor, segments: int, weight: Tensor | None = None) -> Tensor:
    """By segment; the maximum less 69 where nothing has weight."""
    top = scatter(values.detach(), index, dim_size=segments, reduce="max")
    shifted = (values - top[index]).exp()
    if weight is not None:
        shifted = shifted * weight
    return scatter(shifted, index, dim_size=segments, reduce="sum").clamp(min=1e-30).log() + top


def noisy_or(chances: Tensor, index: Tensor, segments: int) -> Tensor:
    """The chance that at least one of a segment holds."""
    return -torch.expm1(scatter(torch.log1p(-chances.clamp(max=0.999)), index, dim_size=segments, reduce="sum"))


def plan(batch: Batch, relations: int, positions: int) -> SimpleNamespace:
    """Chains, anchors and steps as index tensors."""
    G, N, R = batch.num_graphs, batch.num_nodes, relations
    anchors = torch.full((G * 2,), N)
    anchors[batch.anchor_slot_batch * 2 + batch.anchor_slot] = batch.anchor_index
    anchors = anchors.view(G, 2)
    anchors = torch.where(anchors == N, anchors[:, :1], anchors)
    chains = torch.full((G * 2 * positions,), 2 * R)
    cell = (batch.token_relation_batch * 2 + batch.token_branch) * positions + batch.token_position
    chains[cell] = batch.token_relation
    two = batch.answer_mode == ANSWER_MODES.index(AnswerMode.AGGREGATE)
    chains = chains.view(G, 2, positions)
    chains = torch.where(two[:, None, None], chains, chains[:, :1])
    source, target = batch.edge_index[:, batch.step_edge]
    step_to = torch.where(batch.step_reversed, source, target)
    last = torch.where(batch.path_length > 0, batch.path_length.cumsum(0) - 1, len(step_to))
    return SimpleNamespace(
        anchors=anchors,
        chains=chains,
        chain_length=(chains != 2 * R).sum(-1),
        two=two,
        hops=int(batch.token_position.max()) + 1,
        path_graph=batch.path_label_batch,
        step_graph=batch.path_label_batch[batch.step_path],
        step_relation=batch.edge_type[batch.step_edge] + batch.step_reversed * R,
        step_from=torch.where(batch.step_reversed, target, source),
        step_to=step_to,
        path_end=torch.cat([step_to, step_to.new_full((1,), N)])[last],
        nodes=count(batch.batch, G),
        relation_rows=(batch.answer_mode == ANSWER_MODES.index(AnswerMode.RELATION)).nonzero()[:, 0],
        steps=(batch.path_label[batch.step_path] == 1).nonzero()[:, 0],
    )


class QueryEncoder(nn.Module):
    """Chains, answer mode and anchors' roles: a state for each hop, and a summary."""

    def __init__(self, relations: int, hidden: int, positions: int) -> None:
        super().__init__()
        H = hidden
        self.relation, self.position = nn.Embedding(2 * relations + 1, H), nn.Embedding(positions, H)
        self.mode, self.context = nn.Embedding(len(ANSWER_MODES), H), nn.Linear(H, H)
        self.hop = nn.Sequential(nn.LayerNorm(H), nn.Linear(H, H), nn.GELU(), nn.Linear(H, H))
        self.whole = nn.Sequential(nn.LayerNorm(2 * H), nn.Linear(2 * H, H), nn.GELU(), nn.Linear(H, H))
        self.anchor = nn.Linear(H, 2 * H)

    def forward(self, p: Any, answer_mode: Tensor) -> SimpleNamespace:
        relation, position, mode = self.relation(p.chains), self.position.weight, self.mode(answer_mode)
        inside = torch.arange(len(position)) < p.chain_length[..., None]
        context = (relation * (1 + position) * inside[..., None]).sum(2)
        context = self.context(context / p.chain_length.clamp(min=1)[..., None].sqrt())
        hops = self.hop(relation + position + (context + mode[:, None])[:, :, None])
        summary = self.whole(torch.cat([context.sum(1) + mode, context.prod(1) + mode], -1))
        return SimpleNamespace(hops=hops, summary=summary, anchors=self.anchor(summary).unflatten(1, (2, -1)))


class Walk(nn.Module):
    """The query's chains as soft sets of nodes, hop by hop."""

    def __init__(self, relations: int) -> None:
        super().__init__()
        self.relations = relations
        self.query, self.edge = nn.Embedding(2 * relations + 1, 16), nn.Embedding(2 * relations, 16)
        self.scale, self.threshold = nn.Parameter(torch.tensor(10.0)), nn.Parameter(torch.tensor(6.0))

    def forward(self, batch: Batch, p: Any) -> SimpleNamespace:
        G, N, R = batch.num_graphs, batch.num_nodes, 2 * self.relations
        chains = p.chains[:, :, : p.hops].permute(2, 0, 1)
        same = F.one_hot(chains, R + 1)[..., :R]
        gates = torch.sigmoid(self.query(chains) @ self.edge.weight.t() + self.scale * same - self.threshold)
        source, target = batch.message_index
        cell = batch.batch[target] * R + batch.message_type
        start = torch.where(p.two[:, None], p.anchors, p.anchors[:, :1])
        here = torch.zeros(N + 1, 2)
        here[start[:, 0], 0] = 1.0
        here[start[:, 1], 1] = 1.0
        here = here[:N]
        length = p.chain_length[batch.batch]
        frontiers, crossed = [here], torch.zeros(len(source), 2)
        for hop in range(p.hops):
            walking = torch.where(hop < length, here, 0.0)
            step = gates[hop].transpose(1, 2).reshape(G * R, 2)[cell] * walking[source]
            here = torch.where(hop < length, noisy_or(step, target, N), here)
            frontiers.append(here)
            crossed = torch.maximum(crossed, step)
        joint = torch.where(p.two[batch.batch][:, None], here[:, :1] * here[:, 1:], here[:, :1])
        return SimpleNamespace(frontiers=frontiers, reached=here, joint=joint, crossed=crossed.amax(1), gates=gates)


class Conflicts(nn.Module):
    """Edges that another fact excludes: several of a relation at one node, and others between the same two nodes."""

    def __init__(self, relations: int) -> None:
        super().__init__()
        self.relations = relations
        self.several, self.pair = nn.Embedding(2 * relations, 1), nn.Embedding(relations * 2 * relations, 1)

    def forward(self, batch: Batch) -> tuple[Tensor, Tensor]:
        R, N, E = self.relations, batch.num_nodes, batch.edge_index.shape[1]
        source, target = batch.edge_index
        relation = batch.edge_type
        keys = torch.cat([target * 2 * R + relation, source * 2 * R + relation + R])
        _, group, size = keys.unique(return_inverse=True, return_counts=True)
        many = size[group] > 1
        several = (self.several(keys % (2 * R))[:, 0] * many).view(2, E).sum(0)
        sign = many.view(2, E).any(0)
        low, high = torch.minimum(source, target), torch.maximum(source, target)
        ordered, order = torch.sort(((low * N + high) * R + relation) * 2 + (source > target))
        pair, kind, backwards = ordered // (2 * R), ordered // 2 % R, ordered % 2
        score, found = torch.zeros(E), torch.zeros(E, dtype=torch.bool)
        for shift in range(1, 4):
            near = (
                (pair[shift:] == pair[:-shift]) & (ordered[shift:] != ordered[:-shift]) & (low != high)[order][shift:]
            )
            cell = kind[:-shift] * (2 * R) + kind[shift:] + R * (backwards[shift:] != backwards[:-shift])
            value = self.pair(cell)[:, 0] * near
            score = score + F.pad(value, (0, shift)) + F.pad(value, (shift, 0))
            found = found | F.pad(near, (0, shift)) | F.pad(near, (shift, 0))
        parallel, beside = torch.empty_like(score), torch.empty_like(found)
        parallel[order], beside[order] = score, found
        edge = torch.sigmoid(32.0 * (several + parallel) - 4.0) * (sign | beside)
        ends, both = torch.cat([source, target]), torch.cat([edge, edge])
        return edge, noisy_or(both, ends, N)[:, None]


class Layer(nn.Module):
    """A GINE convolution, modulated by the query at each node, with a residual."""

    def __init__(self, relations: int, hidden: int) -> None:
        super().__init__()
        self.relation = nn.Embedding(2 * relations, hidden)
        self.conv = GINEConv(nn.Linear(hidden, hidden))
        self.own = nn.Linear(hidden, hidden)
        self.signal = nn.Linear(3, hidden, bias=False)
        self.modulation = nn.Linear(hidden, 2 * hidden)
        self.norm = nn.LayerNorm(hidden)

    def forward(self, h: Tensor, batch: Batch, query: Tensor, signal: Tensor) -> Tensor:
        update = (
            self.conv(h, batch.message_index, self.relation(batch.message_type)) + self.own(h) + self.signal(signal)
        )
        gain, shift = self.modulation(query)[batch.batch].chunk(2, -1)
        return h + F.gelu(self.norm(update) * (1 + gain) + shift)


class PygModel(nn.Module):
    """Outputs as Hopline's ``Forward`` names them."""

    def __init__(self, config: ModelConfig, relations: int) -> None:
        super().__init__()
        H, R = config.hidden_dim, relations
        self.relations, self.heads, self.width = R, config.pat.heads, H // config.pat.heads
        self.positions = max(config.layers, config.max_hops)
        self.query_encoder = QueryEncoder(R, H, self.positions)
        self.walk, self.conflicts = Walk(R), Conflicts(R)
        self.blank = nn.Parameter(torch.randn(H) * 0.1)
        self.layers = nn.ModuleList(Layer(R, H) for _ in range(config.layers))
        self.pool, self.pool_query = nn.Linear(4 * H, H), nn.Linear(H, H, bias=False)
        self.pool_features = nn.Linear(WALK_FEATURES, H, bias=False)
        self.pool_norm, self.pool_out = nn.LayerNorm(H), nn.Linear(H, H)
        self.path_relation, self.path_position = nn.Embedding(2 * R, H), nn.Embedding(self.positions, H)
        self.signature, self.asked = nn.Linear(H, H), nn.Linear(H, H)
        self.fit, self.end, self.path_query = (nn.Linear(H, H, bias=False) for _ in range(3))
        self.path_features, self.path_norm, self.path_out = (
            nn.Linear(8, H, bias=False),
            nn.LayerNorm(H),
            nn.Linear(H, H),
        )
        self.key, self.value, self.seek = (nn.Linear(H, H) for _ in range(3))
        self.select, self.limit, self.selected = nn.Linear(H, 1), nn.Linear(H, 1), nn.Linear(H, H)
        self.node, self.row = nn.Linear(H, H), nn.Linear(H, H, bias=False)
        self.node_signals, self.node_out = nn.Linear(5, H, bias=False), nn.Linear(H, 1)
        self.next_hop = StepHead(nodes=1, hidden_dim=H, relations=2 * R)
        self.hop_relation = StepHead(nodes=2, hidden_dim=H, relations=2 * R)
        self.relation = EdgeHead(hidden_dim=H, relations=R, bilinear=False)
        self.trunk = EvidenceTrunk(hidden_dim=H, features=WALK_FEATURES + 2, dropout=0.0)
        self.count = CountHead(hidden_dim=H, max_count=config.max_count)
        self.confidence = ConfidenceHead(hidden_dim=H, signals=SIGNALS)

    def forward(self, batch: Batch) -> SimpleNamespace:
        G, N = batch.num_graphs, batch.num_nodes
        p = plan(batch, self.relations, self.positions)
        query = self.query_encoder(p, batch.answer_mode)
        walk = self.walk(batch, p)
        conflict, at_node = self.conflicts(batch)
        mark = query.anchors.flatten(0, 1)[batch.anchor_slot_batch * 2 + batch.anchor_slot]
        h = self.blank + scatter(mark, batch.anchor_index, dim_size=N, reduce="sum")
        for index, layer in enumerate(self.layers):
            signal = torch.cat([walk.frontiers[min(index + 1, p.hops)], at_node], 1)
            h = layer(h, batch, query.hops[:, :, index].mean(1) + query.summary, signal)
        padded = F.pad(h, (0, 0, 0, 1))
        features = self._walk_features(batch, p, walk, conflict)
        reached = scatter(walk.joint * h, batch.batch, dim_size=G, reduce="sum")
        reached = reached / (scatter(walk.joint, batch.batch, dim_size=G, reduce="sum") + 0.1)
        mean = scatter(h, batch.batch, dim_size=G, reduce="mean")
        pooled = self.pool(torch.cat([padded[p.anchors].flatten(1), reached, mean], 1)) + self.pool_query(query.summary)
        summary = F.gelu(self.pool_out(F.gelu(self.pool_norm(pooled + self.pool_features(features)))))

        paths = self._paths(batch, p, query, walk, conflict, padded)
        score = (self.seek(query.summary)[p.path_graph] * self.key(paths)).view(-1, self.heads, self.width).sum(-1)
        score = score / self.width**0.5
        weight = softmax(score, p.path_graph, num_nodes=G)
        seen = (weight[..., None] * self.value(paths).view(-1, self.heads, self.width)).flatten(1)
        evidence = scatter(seen, p.path_graph, dim_size=G, reduce="sum")
        label, mean_score = batch.path_label.float(), score.mean(1)
        selection, threshold = self.select(paths)[:, 0], self.limit(query.summary)[:, 0]
        margin = selection - threshold[p.path_graph]
        mass = scatter(label, p.path_graph, dim_size=G, reduce="sum")[:, None]
        chosen = scatter(label[:, None] * self.selected(paths), p.path_graph, dim_size=G, reduce="sum") / (1 + mass)

        backing = scatter(torch.sigmoid(margin), p.path_end, dim_size=N + 1, reduce="sum")[:-1, None].log1p()
        signals = self.node_signals(torch.cat([walk.joint, walk.reached, at_node, backing], 1))
        hidden = F.gelu(self.node(h) + self.row(summary)[batch.batch] + signals)
        entity = self.node_out(hidden)[:, 0] + 8.0 * walk.joint[:, 0]
        expected = scatter(torch.sigmoid(entity), batch.batch, dim_size=G, reduce="sum")[:, None]
        walked = scatter(walk.joint, batch.batch, dim_size=G, reduce="sum")
        state, support, status = self.trunk(
            [summary, evidence, chosen], torch.cat([features, mass.log1p(), expected.log1p()], 1)
        )
        counts = self.count(state, expected, walked, status)
        hop_graph = p.step_graph[p.steps]
        hops = query.hops.mean(1)[hop_graph, batch.step_position[p.steps]]
        start, stop = h[p.step_from[p.steps]], h[p.step_to[p.steps]]
        ends = padded[p.anchors[p.relation_rows]]
        relation = self.relation(ends[:, 0], ends[:, 1], evidence[p.relation_rows], None)
        return SimpleNamespace(
            node_states=h, entity_logits=entity, next_hop_logits=self.next_hop(start, hops),
            hop_relation_logits=self.hop_relation(torch.cat([start, stop], 1), hops), hop_graph=hop_graph,
            hop_labels=p.step_relation[p.steps], relation_logits=relation, relation_graph=p.relation_rows,
            selection_logits=selection, selection_threshold=threshold, path_graph=p.path_graph, support_logit=support,
            pat_positive=log_sum_exp(mean_score, p.path_graph, G, label),
            pat_negative=log_sum_exp(mean_score, p.path_graph, G, 1 - label),
            pat_mask=(mass[:, 0] > 0) & (scatter(1 - label, p.path_graph, dim_size=G, reduce="sum") > 0),
            contradiction_logits=status, count_logits=counts,
            confidence_logit=self.confidence(
                state, self._signals(batch, p, support, status, counts, entity, margin, relation)
            ),
        )  # fmt: skip

    def _walk_features(self, batch: Batch, p: Any, walk: Any, conflict: Tensor) -> Tensor:
        G = batch.num_graphs
        alive = noisy_or(torch.cat([*walk.frontiers[1:], walk.joint], 1), batch.batch, G)
        inside = torch.arange(p.hops)[:, None] < p.chain_length[:, None]
        progress = (alive[:, :-1].view(G, p.hops, 2) * inside).sum(1) / p.chain_length.clamp(min=1)
        sums = scatter(torch.cat([walk.joint, walk.reached], 1), batch.batch, dim_size=G, reduce="sum")
        edge_graph = batch.batch[batch.edge_index[0]]
        message_graph = batch.batch[batch.message_index[1]]
        crossed = scatter(walk.crossed, message_graph, dim_size=G, reduce="sum")[:, None]
        conflicts = scatter(conflict, edge_graph, dim_size=G, reduce="sum")[:, None]
        second = F.pad(walk.joint, (0, 0, 0, 1))[p.anchors[:, 1]]
        size, two = p.nodes.float().log1p()[:, None] / 5, p.two.float()[:, None]
        any_conflict = noisy_or(conflict[:, None], edge_graph, G)
        parts = [
            any_conflict,
            progress,
            alive[:, -1:],
            sums.log1p(),
            crossed.log1p(),
            conflicts.log1p(),
            second,
            size,
            two,
        ]
        return torch.cat(parts, 1)

    def _paths(self, batch: Batch, p: Any, query: Any, walk: Any, conflict: Tensor, padded: Tensor) -> Tensor:
        P, branch = len(batch.path_label), torch.arange(2)
        position = batch.step_position.clamp(max=self.positions - 1)
        ordered = self.path_relation(p.step_relation) * (1 + self.path_position(position))
        signature = scatter(ordered, batch.step_path, dim_size=P, reduce="sum")
        signature = F.gelu(self.signature(signature / batch.path_length.clamp(min=1).sqrt()[:, None]))
        inside = batch.step_position[:, None] < p.chain_length[p.step_graph]
        place = batch.step_position.clamp(max=p.hops - 1)[:, None]
        gates = walk.gates[place, p.step_graph[:, None], branch, p.step_relation[:, None]]
        gates = torch.where(inside, gates, 0.0)
        follows = scatter(gates.clamp(min=1e-6).log(), batch.step_path, dim_size=P, reduce="sum").exp()
        follows = follows * (batch.path_length[:, None] == p.chain_length[p.path_graph])
        at_end = F.pad(torch.cat([walk.joint, walk.reached], 1), (0, 0, 0, 1))[p.path_end]
        doubt = noisy_or(conflict[batch.step_edge][:, None], batch.step_path, P)
        second = (p.path_end == p.anchors[:, 1][p.path_graph]).float()[:, None]
        features = torch.cat([follows, at_end, doubt, second, batch.path_length.float().log1p()[:, None]], 1)
        mixed = self.fit(signature * self.asked(query.summary)[p.path_graph]) + self.end(padded[p.path_end])
        mixed = mixed + self.path_query(query.summary)[p.path_graph] + self.path_features(features)
        return F.gelu(self.path_out(F.gelu(self.path_norm(mixed + signature))))

    @torch.no_grad()
    def _signals(
        self, batch: Batch, p: Any, support: Tensor, status: Tensor, counts: Tensor, entity: Tensor, margin: Tensor,
        relation: Tensor,
    ) -> Tensor:  # fmt: skip
        G = batch.num_graphs
        chance = torch.sigmoid(entity)
        doubt = torch.minimum(chance, 1 - chance)
        sums = scatter(torch.stack([chance, doubt, doubt.square()], 1), batch.batch, dim_size=G, reduce="sum")
        strongest = log_sum_exp(8 * entity, batch.batch, G)[:, None] / 8
        best_path = log_sum_exp(8 * margin, p.path_graph, G)[:, None] / 8
        paths = scatter(torch.sigmoid(margin), p.path_graph, dim_size=G, reduce="sum")[:, None]
        asked = torch.zeros(G, 2)
        asked[p.relation_rows] = _top(relation)
        mode = F.one_hot(batch.answer_mode, len(ANSWER_MODES)).float()
        return torch.cat(
            [
                support[:, None] / 4, F.log_softmax(status, -1).clamp(min=-8) / 4, sums[:, :1].log1p(), sums[:, 1:],
                strongest.clamp(-8, 8) / 4, paths.log1p(), best_path.clamp(-8, 8) / 4, _top(counts), asked, mode,
            ],
            1,
        )  # fmt: skip


def _top(logits: Tensor) -> Tensor:
    chance = F.log_softmax(logits, -1)
    best = chance.topk(2, -1).values
    odds = best[:, :1] - torch.log1p(-best[:, :1].exp().clamp(max=1 - 1e-6))
    return torch.cat([odds, best[:, :1] - best[:, 1:]], 1).clamp(-10, 10) / 4
