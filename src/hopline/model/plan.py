"""Index tensors that several parts of the model need, worked out once for a batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from hopline.graph import ANSWER_MODES, KINDS, AnswerMode, GraphBatch, QueryKind
from hopline.model.segments import segment_count

__all__ = ["BRANCHES", "BatchPlan", "plan_batch"]

BRANCHES: Final = 2
"""Chains that a query may have; an aggregate query has two."""

_RELATION_MODE: Final = ANSWER_MODES.index(AnswerMode.RELATION)
_AGGREGATE_MODE: Final = ANSWER_MODES.index(AnswerMode.AGGREGATE)
_LINK_KIND: Final = KINDS.index(QueryKind.LINK)


@dataclass(frozen=True, slots=True, eq=False)
class BatchPlan:
    """Index tensors of a batch of ``G`` rows with ``N`` nodes, ``M`` messages, ``P`` paths and ``S`` steps.

    Nothing here depends on a label, except ``supporting_steps``, from which only training targets are made.

    Attributes:
        graphs, nodes: G and N.
        node_start, node_count: ``[G]``.
        anchors: ``[G, 2]`` node of anchor slot 0 and 1; N where the query has none. A row with one anchor repeats it.
        chains: ``[G, 2, J]`` relation of each hop, 2R beyond the chain's end; a query with one chain repeats it.
        chain_length: ``[G, 2]``.
        own_chains: ``[U]`` the chains that are none's repetition, as places in ``chains`` flattened to ``[G * 2, J]``: the
            first of every row, then the second of those that have two. chain: ``[G, 2]`` which of them a branch follows.
        two_chains: bool ``[G]``.
        hops: longest chain of the batch.
        inverse_degree: ``[N, 1]`` ``1 / sqrt(1 + messages into the node)``.
        message_cell: ``[M]`` ``graph * 2R + relation``, a cell of a table with a row for each graph and relation.
        link_rows: ``[L]`` rows that rank all entities; empty for a model without identities. relation_rows: ``[Q]``.
        supporting_steps: ``[S+]``.
        step_relation: ``[S]`` in ``[0, 2R)``; step_from, step_to: ``[S]`` nodes; step_graph: ``[S]``.
        path_end: ``[P]`` node where the path ends; N for a path without steps.
    """

    graphs: int
    nodes: int
    node_start: Tensor
    node_count: Tensor
    anchors: Tensor
    chains: Tensor
    chain_length: Tensor
    own_chains: Tensor
    chain: Tensor
    two_chains: Tensor
    hops: int
    inverse_degree: Tensor
    message_cell: Tensor
    link_rows: Tensor
    relation_rows: Tensor
    supporting_steps: Tensor
    step_relation: Tensor
    step_from: Tensor
    step_to: Tensor
    step_graph: Tensor
    path_end: Tensor


def plan_batch(batch: GraphBatch, *, num_relations: int, positions: int, ranks_entities: bool) -> BatchPlan:
    """Work out the plan of a batch, without reading anything back from the device.

    Args:
        batch: the batch.
        num_relations: R.
        positions: J, hops of each chain to provide for; at least those of the longest.
        ranks_entities: whether link queries rank the whole vocabulary.
    """
    graphs, nodes = batch.num_graphs, batch.num_nodes
    device = batch.node_graph.device
    supporting = batch.path_label.index_select(0, batch.step_path) == 1
    node_count = segment_count(batch.node_graph, graphs)
    node_start = node_count.cumsum(0) - node_count

    # Every row of the union starts at slot 0; where an anchor is absent, index N points at the zero row that heads append.
    anchors = torch.full((graphs * BRANCHES,), nodes, dtype=torch.int64, device=device)
    anchors = anchors.index_copy(0, batch.anchor_graph * BRANCHES + batch.anchor_slot, batch.anchor_node)
    anchors = anchors.view(graphs, BRANCHES)
    anchors = torch.where(anchors == nodes, anchors[:, :1], anchors)

    stay = 2 * num_relations
    chains = torch.full((graphs * BRANCHES * positions,), stay, dtype=torch.int64, device=device)
    cell = (batch.token_graph * BRANCHES + batch.token_branch) * positions + batch.token_position
    chains = chains.index_copy(0, cell, batch.token_relation).view(graphs, BRANCHES, positions)
    two_chains = batch.answer_mode == _AGGREGATE_MODE
    chains = torch.where(two_chains[:, None, None], chains, chains[:, :1])
    first = torch.arange(graphs, device=device)
    two_rows = _rows(two_chains, batch.num_aggregates)
    second = first.index_copy(0, two_rows, graphs + torch.arange(len(two_rows), device=device))

    step_graph = batch.path_graph.index_select(0, batch.step_path)
    source = batch.edge_index[0].index_select(0, batch.step_edge)
    target = batch.edge_index[1].index_select(0, batch.step_edge)
    step_relation = batch.edge_type_ids.index_select(0, batch.step_edge) + batch.step_reversed * num_relations
    step_to = torch.where(batch.step_reversed, source, target)
    last_step = batch.path_length.cumsum(0) - 1
    padded = torch.cat([step_to, step_to.new_full((1,), nodes)])
    last_step = torch.where(batch.path_length > 0, last_step, len(step_to))

    degree = segment_count(batch.message_target, nodes)
    message_graph = batch.node_graph.index_select(0, batch.message_target)
    return BatchPlan(
        graphs=graphs,
        nodes=nodes,
        node_start=node_start,
        node_count=node_count,
        anchors=anchors,
        chains=chains,
        chain_length=(chains != stay).sum(-1),
        own_chains=torch.cat([first * BRANCHES, two_rows * BRANCHES + 1]),
        chain=torch.stack([first, second], 1),
        two_chains=two_chains,
        hops=batch.longest_chain,
        inverse_degree=(1 + degree).to(torch.float32).rsqrt()[:, None],
        message_cell=message_graph * (2 * num_relations) + batch.message_relation,
        link_rows=_rows(batch.kind == _LINK_KIND, batch.num_links if ranks_entities else 0),
        relation_rows=_rows(batch.answer_mode == _RELATION_MODE, batch.num_relation_queries),
        supporting_steps=_rows(supporting, batch.num_supporting_steps),
        step_relation=step_relation,
        step_from=torch.where(batch.step_reversed, target, source),
        step_to=step_to,
        step_graph=step_graph,
        path_end=padded.index_select(0, last_step),
    )


def _rows(mask: Tensor, size: int) -> Tensor:
    """Indices where the mask holds, given how many there are; filled up with the last index, which is padding then."""
    return torch.nonzero_static(mask, size=size, fill_value=len(mask) - 1).view(-1)
