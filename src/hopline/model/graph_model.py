"""GraphModel: one forward pass over the disjoint union of many example graphs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hopline.config import GraphConfig, ModelConfig
from hopline.datasets.convert import columns_from_examples
from hopline.datasets.vocabulary import Vocabulary
from hopline.errors import ConfigError, DataError
from hopline.graph import (
    AnswerMode,
    GraphBatch,
    GraphStore,
    Path,
    Query,
    QueryKind,
    ReasoningExample,
    Status,
    collate,
)
from hopline.model.conflicts import ConflictDetector
from hopline.model.forward import Forward
from hopline.model.heads import ConfidenceHead, CountHead, EdgeHead, EntityHead, EvidenceTrunk, LinkHead, StepHead
from hopline.model.paths import PathAttention, PathEncoder, PathSelector
from hopline.model.plan import BRANCHES, BatchPlan, plan_batch
from hopline.model.propagation import Propagation
from hopline.model.query_encoder import QueryEncoder
from hopline.model.readout import WALK_FEATURES, GraphReadout, walk_features
from hopline.model.segments import segment_sum
from hopline.model.signals import CONFIDENCE_SIGNALS, confidence_signals
from hopline.model.transductive import BilinearBranch, mix_rankings
from hopline.model.walk import ChainWalk

__all__ = ["GraphModel", "build_model"]


class GraphModel(nn.Module):
    """Answers queries about small multi-relational graphs.

    Args:
        config: the architecture.
        num_relations: R, relations without their inverses.
        num_entities: V, entities with an identity; 0 unless ``config.transductive``.
        link_head, link_logit_scale: how an edge is scored; see :meth:`link_logits`.

    Attributes:
        query_encoder: freezable; parameters ``query_encoder.*``.
        transductive: the bilinear branch, or None; parameters ``transductive.*``.
        link_mlp: present with ``link_head="mlp"``.

    Parameters whose names end in ``.threshold`` or ``.scale`` are not weights and are not to be decayed.
    """

    def __init__(
        self,
        config: ModelConfig,
        *,
        num_relations: int,
        num_entities: int = 0,
        link_head: Literal["cosine", "mlp"] = "cosine",
        link_logit_scale: float = 2.0,
    ) -> None:
        super().__init__()
        if num_relations < 1:
            raise ConfigError(f"the vocabulary has {num_relations} relations; expected at least 1")
        if config.transductive and num_entities < 1:
            raise ConfigError(
                "model.transductive is true, but the dataset's entities have no identity; set dataset.entities: identity"
            )
        H, R, dropout = config.hidden_dim, num_relations, config.dropout
        self.config, self.num_relations, self.num_entities = config, num_relations, num_entities
        self.link_head, self.link_logit_scale = link_head, link_logit_scale
        self.positions = max(config.layers, config.max_hops)
        self.query_encoder = QueryEncoder(num_relations=R, hidden_dim=H, positions=self.positions)
        self.walk = ChainWalk(num_relations=R)
        self.conflicts = ConflictDetector(num_relations=R)
        self.propagation = Propagation(num_relations=R, hidden_dim=H, layers=config.layers, dropout=dropout)
        self.readout = GraphReadout(hidden_dim=H, dropout=dropout)
        self.paths = PathEncoder(num_relations=R, hidden_dim=H, positions=self.positions)
        self.path_attention = PathAttention(hidden_dim=H, heads=config.pat.heads, temperature=config.pat.temperature)
        self.selector = PathSelector(hidden_dim=H, on_policy=config.on_policy_selection)
        self.entities = EntityHead(hidden_dim=H)
        self.next_hop = StepHead(nodes=1, hidden_dim=H, relations=2 * R)
        self.hop_relation = StepHead(nodes=2, hidden_dim=H, relations=2 * R)
        self.relation = EdgeHead(hidden_dim=H, relations=R, bilinear=config.transductive)
        self.trunk = EvidenceTrunk(hidden_dim=H, features=WALK_FEATURES + 2, dropout=dropout)
        self.count = CountHead(hidden_dim=H, max_count=config.max_count)
        self.confidence = ConfidenceHead(hidden_dim=H, signals=CONFIDENCE_SIGNALS)
        self.transductive: BilinearBranch | None = None
        if config.transductive:
            self.transductive = BilinearBranch(
                num_entities=num_entities,
                num_relations=R,
                rank=config.transductive_rank,
                dropout=config.transductive_dropout,
            )
        self.link_mlp: LinkHead | None = LinkHead(H) if link_head == "mlp" else None

    def forward(self, batch: GraphBatch) -> Forward:
        """As :meth:`forward_batch`; what a wrapper such as DistributedDataParallel calls."""
        return self.forward_batch(batch)

    def forward_batch(self, batch: GraphBatch) -> Forward:
        """All outputs for a batch; see :class:`Forward` for every field.

        No row sees another: a row's outputs are those of the row alone. Nothing is read back from the device.
        """
        plan = plan_batch(
            batch,
            num_relations=self.num_relations,
            positions=min(self.positions, max(self.config.layers, batch.longest_chain, batch.longest_path)),
            ranks_entities=self.transductive is not None,
        )
        query = self.query_encoder(plan, batch.answer_mode)
        walk = self.walk(batch, plan)
        conflicts = self.conflicts(batch, plan)
        states = self.propagation(batch, plan, query, walk, conflicts.node)  # [N, H]
        # Row N is what an absent anchor or end of a path points at. All rows that the heads want, in one go.
        padded = F.pad(states, (0, 0, 0, 1))  # [N + 1, H]
        steps = plan.supporting_steps
        step_from, step_to = plan.step_from.index_select(0, steps), plan.step_to.index_select(0, steps)
        wanted = [plan.anchors.view(-1), plan.path_end, step_from, step_to]
        picked = padded.index_select(0, torch.cat(wanted))
        anchors, ends, nodes_from, nodes_to = torch.split(picked, [len(rows) for rows in wanted])
        features = walk_features(batch, plan, walk, conflicts)
        anchors = anchors.view(plan.graphs, BRANCHES * states.shape[1])
        summary = self.readout(batch, plan, query, walk, features, states, anchors)  # [G, H]

        paths = self.paths(batch, plan, query, walk, conflicts, ends)  # [P, H]
        attention = self.path_attention(batch, query, paths)
        selection, threshold = self.selector(batch, query, paths)
        selected = self.selector.evidence(batch, paths, selection, threshold)
        margin = selection - threshold.index_select(0, batch.path_graph)
        backing = segment_sum(torch.sigmoid(margin), plan.path_end, plan.nodes + 1)[:-1, None].log1p()  # [N, 1]

        signals = torch.cat([walk.joint, walk.reached, conflicts.node, backing], 1)  # [N, 5]
        entity_logits = self.entities(states, summary, batch.node_graph, signals)
        expected = segment_sum(torch.sigmoid(entity_logits), batch.node_graph, plan.graphs)[:, None]
        walked = segment_sum(walk.joint, batch.node_graph, plan.graphs)
        state, support_logit, contradiction_logits = self.trunk(
            [summary, attention.evidence, selected.states], torch.cat([features, selected.mass, expected.log1p()], 1)
        )
        count_logits = self.count(state, expected, walked, contradiction_logits)

        hop_graph = plan.step_graph.index_select(0, steps)
        positions = query.hops.shape[1]
        place = batch.step_position.index_select(0, steps).clamp(max=positions - 1)
        hops = query.mean().flatten(0, 1).index_select(0, hop_graph * positions + place)
        labels = plan.step_relation.index_select(0, steps)

        bilinear, ranking = self._ranking(batch, plan, entity_logits)
        relation_logits = self._relation(batch, plan, anchors, attention.evidence)
        confidence = self.confidence(
            state,
            confidence_signals(
                batch,
                plan,
                support=support_logit,
                status=contradiction_logits,
                count=count_logits,
                entities=entity_logits,
                margin=margin,
                ranking=ranking,
                relation=relation_logits,
            ),
        )
        return Forward(
            entity_order=torch.arange(plan.nodes, device=states.device)
            - plan.node_start.index_select(0, batch.node_graph),
            node_states=states,
            entity_logits=entity_logits,
            ranking_logits=ranking,
            bilinear_logits=bilinear,
            ranking_graph=plan.link_rows,
            next_hop_logits=self.next_hop(nodes_from, hops),
            next_hop_labels=labels,
            hop_relation_logits=self.hop_relation(torch.cat([nodes_from, nodes_to], 1), hops),
            hop_relation_labels=labels,
            hop_graph=hop_graph,
            relation_logits=relation_logits,
            relation_graph=plan.relation_rows,
            selection_logits=selection,
            selection_threshold=threshold,
            selection_labels=batch.path_label.float(),
            path_attention=attention.attention,
            pat_positive=attention.positive,
            pat_negative=attention.negative,
            pat_mask=attention.mask,
            support_logit=support_logit,
            contradiction_logits=contradiction_logits,
            count_logits=count_logits,
            confidence_logit=confidence,
        )

    def forward_example(
        self,
        store: GraphStore,
        query: Query,
        *,
        supporting_paths: Sequence[Path] = (),
        competing_paths: Sequence[Path] = (),
        answers: Iterable[int] = (),
        status: Status | None = None,
    ) -> Forward:
        """The outputs for one query: a batch of one, equal to the same row of any batch.

        Args:
            store: the graph.
            query: the question. An entity query with one chain of one relation counts as a link query.
            supporting_paths, competing_paths: candidate walks; where it is not known which support, all are competing.
            answers: node indices; only labels.
            status: only a label.

        Raises:
            DataError: the query does not fit the graph or the model: an anchor outside the graph, an unknown relation, too
                many or too long chains.
        """
        self._check(store, query)
        example = ReasoningExample(
            example_id=0,
            graph=store.graph,
            query=query,
            kind=_kind(query),
            status=Status.SUPPORTED if status is None else Status(status),
            answers=tuple(answers),
            supporting_paths=tuple(supporting_paths),
            competing_paths=tuple(competing_paths),
        )
        batch = collate(columns_from_examples([example]), num_relations=self.num_relations)
        return self.forward_batch(batch.to(self.propagation.blank.device))

    def link_logits(self, states: Tensor, pairs: Tensor, cosines: Tensor) -> Tensor:
        """``[K]`` whether each pair of nodes is joined.

        Args:
            states: ``[N, H]`` node states.
            pairs: int64 ``[K, 2]``.
            cosines: ``[K]`` of the pairs; the cosine head is these times ``link_logit_scale``.
        """
        if self.link_mlp is None:
            return self.link_logit_scale * cosines
        states = F.normalize(states, dim=-1, eps=1e-6)
        logits: Tensor = self.link_mlp(states.index_select(0, pairs[:, 0]), states.index_select(0, pairs[:, 1]))
        return logits

    def parameter_buckets(self) -> Mapping[str, int]:
        """Parameters in each part of the model, and in ``total``."""
        buckets = {name: sum(p.numel() for p in part.parameters()) for name, part in self.named_children()}
        return {**buckets, "total": sum(buckets.values())}

    def _ranking(self, batch: GraphBatch, plan: BatchPlan, entity_logits: Tensor) -> tuple[Tensor, Tensor]:
        """Bilinear scores ``[L, V]``, and the same with the structural scores of the row's nodes added."""
        if self.transductive is None:
            empty = entity_logits.new_zeros((0, 0))
            return empty, empty
        rows, V = plan.link_rows, self.num_entities
        head = F.pad(batch.node_entity, (0, 1), value=-1).index_select(0, plan.anchors[:, 0].index_select(0, rows))
        relation = plan.chains[:, 0, 0].index_select(0, rows).clamp(max=2 * self.num_relations - 1)
        bilinear = self.transductive.scores(head, relation)
        # Nodes of other rows, and anonymous ones, go to a row of their own at the end, which is cut off.
        place = torch.full((plan.graphs,), len(rows), dtype=torch.int64, device=rows.device)
        place = place.index_copy(0, rows, torch.arange(len(rows), device=rows.device))
        place = place.index_select(0, batch.node_graph)
        place = torch.where(batch.node_entity >= 0, place, len(rows))
        cell = place * V + batch.node_entity.clamp(min=0)
        size = (len(rows) + 1, V)
        scores = entity_logits.new_zeros(size).view(-1).index_copy(0, cell, entity_logits).view(size)[:-1]
        inside = (
            torch.zeros(size, dtype=torch.bool, device=cell.device).view(-1).index_fill(0, cell, True).view(size)[:-1]
        )
        return bilinear, mix_rankings(bilinear, scores, inside)

    def _relation(self, batch: GraphBatch, plan: BatchPlan, states: Tensor, evidence: Tensor) -> Tensor:
        """``[Q, R]`` for the relation queries, from the states of the anchors ``[G, 2 * H]``."""
        rows = plan.relation_rows
        bilinear = None
        if self.transductive is not None:
            anchors = plan.anchors.index_select(0, rows)  # [Q, 2]
            entity = F.pad(batch.node_entity, (0, 1), value=-1)
            head, tail = (entity.index_select(0, anchors[:, slot]) for slot in range(BRANCHES))
            bilinear = self.transductive.relation_scores(head, tail, self.num_relations)
        first, second = states.index_select(0, rows).chunk(BRANCHES, 1)
        logits: Tensor = self.relation(first, second, evidence.index_select(0, rows), bilinear)
        return logits

    def _check(self, store: GraphStore, query: Query) -> None:
        nodes, relations = store.graph.num_nodes, 2 * self.num_relations
        for anchor in query.anchors:
            if not 0 <= anchor < nodes:
                raise DataError(f"query: anchor {anchor} is no node of the graph; expected 0 to {nodes - 1}")
        if len(query.anchors) > BRANCHES or len(query.chains) > BRANCHES:
            raise DataError(
                f"query: found {len(query.anchors)} anchors and {len(query.chains)} chains; expected at most {BRANCHES}"
            )
        for chain in query.chains:
            if len(chain) > self.config.max_hops:
                raise DataError(
                    f"query: a chain has {len(chain)} hops; this model reads at most {self.config.max_hops} (model.max_hops)"
                )
            for relation in chain:
                if not 0 <= relation < relations:
                    raise DataError(f"query: relation id {relation} is unknown; expected 0 to {relations - 1}")
        highest = int(store.graph.edge_type_ids.max()) if store.graph.num_edges else 0
        if highest >= self.num_relations:
            raise DataError(f"graph: relation id {highest} is unknown; expected 0 to {self.num_relations - 1}")


def build_model(config: GraphConfig, vocabulary: Vocabulary) -> GraphModel:
    """The model of a config for a dataset's vocabulary, with fresh weights from torch's current generator."""
    return GraphModel(
        config.model,
        num_relations=vocabulary.num_relations,
        num_entities=vocabulary.num_entities if config.model.transductive else 0,
        link_head=config.training.link_head,
        link_logit_scale=config.training.link_logit_scale,
    )


def _kind(query: Query) -> QueryKind:
    if query.answer_mode is AnswerMode.ENTITIES:
        single = len(query.chains) == 1 and len(query.chains[0]) == 1
        return QueryKind.LINK if single else QueryKind.MULTI_HOP
    return QueryKind(query.answer_mode.value)
