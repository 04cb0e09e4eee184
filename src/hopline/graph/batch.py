"""The disjoint union of many example graphs, as tensors: what the model reads.

Node, edge and path indices are global to the batch; ``*_graph`` arrays say which of the ``G`` rows an element belongs
to. Nothing is padded, and every ``*_graph`` array is sorted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hopline.graph.clashes import find_clashes
from hopline.graph.columns import GROUPS, ExampleColumns
from hopline.graph.example import ANSWER_MODES, KINDS, AnswerMode, QueryKind

__all__ = ["GraphBatch", "collate"]

_LINK_KIND: Final = KINDS.index(QueryKind.LINK)
_RELATION_MODE: Final = ANSWER_MODES.index(AnswerMode.RELATION)
_AGGREGATE_MODE: Final = ANSWER_MODES.index(AnswerMode.AGGREGATE)


@dataclass(frozen=True, slots=True, eq=False)
class GraphBatch:
    """``G`` rows with ``N`` nodes, ``E`` edges, ``M = 2E`` messages, ``T`` query tokens, ``P`` paths, ``S`` path steps.

    All tensors are int64 unless said otherwise.

    Attributes:
        example_id, kind, answer_mode, status, hops, answer_count, answer_relation: ``[G]``; see
            :data:`hopline.graph.columns.COLUMNS`.
        is_twin: bool ``[G]``; a twin follows its missing example, so the pairs are rows ``(i - 1, i)``.
        node_graph, node_entity: ``[N]``.
        edge_index: ``[2, E]`` source and target nodes; edge_type_ids, edge_graph: ``[E]``.
        message_source, message_target, message_relation: ``[M]``; each edge forwards (relation r) and backwards
            (relation r + R), sorted by target. edge_message: ``[2, E]`` place of each edge's two messages among them.
        clash_edge, clash_cell: ``[.]``; each sign that another edge excludes one, see
            :func:`hopline.graph.clashes.find_clashes`.
        anchor_node, anchor_graph, anchor_slot: ``[A]``; slot = position among the query's anchors.
        token_relation, token_graph, token_branch, token_position: ``[T]``; position = hop within the branch.
        path_graph, path_label, path_length: ``[P]``; label 1 = supporting.
        step_path, step_edge, step_position: ``[S]``; step_reversed: bool ``[S]``.
        answer_node, answer_graph: ``[.]``; answers that are nodes.
        answer_entity, answer_entity_graph: ``[.]``; answers as vocabulary ids.
        known_entity, known_entity_graph: ``[.]``; other true answers, left out by filtered ranking.
        longest_chain, longest_path: hops of the longest chain of any query, steps of the longest path.
        num_links, num_relation_queries, num_aggregates: rows that ask for a link, for a relation, and about two chains.
        num_supporting_steps: steps of supporting paths.
        num_node_pairs: ordered pairs of nodes of the same row, a node with itself among them.

    The last seven are known on the host, so that whoever needs a tensor of such a size reads nothing back from the device.
    """

    example_id: Tensor
    kind: Tensor
    answer_mode: Tensor
    status: Tensor
    hops: Tensor
    is_twin: Tensor
    answer_count: Tensor
    answer_relation: Tensor
    node_graph: Tensor
    node_entity: Tensor
    edge_index: Tensor
    edge_type_ids: Tensor
    edge_graph: Tensor
    message_source: Tensor
    message_target: Tensor
    message_relation: Tensor
    edge_message: Tensor
    clash_edge: Tensor
    clash_cell: Tensor
    anchor_node: Tensor
    anchor_graph: Tensor
    anchor_slot: Tensor
    token_relation: Tensor
    token_graph: Tensor
    token_branch: Tensor
    token_position: Tensor
    path_graph: Tensor
    path_label: Tensor
    path_length: Tensor
    step_path: Tensor
    step_edge: Tensor
    step_reversed: Tensor
    step_position: Tensor
    answer_node: Tensor
    answer_graph: Tensor
    answer_entity: Tensor
    answer_entity_graph: Tensor
    known_entity: Tensor
    known_entity_graph: Tensor
    longest_chain: int
    longest_path: int
    num_links: int
    num_relation_queries: int
    num_aggregates: int
    num_supporting_steps: int
    num_node_pairs: int

    @property
    def num_graphs(self) -> int:
        return len(self.example_id)

    @property
    def num_nodes(self) -> int:
        return len(self.node_graph)

    @property
    def num_edges(self) -> int:
        return len(self.edge_graph)

    @property
    def num_paths(self) -> int:
        return len(self.path_graph)

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> GraphBatch:
        """The same batch on another device."""
        return self._map(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> GraphBatch:
        """The same batch in page-locked memory, from which copies to a GPU run beside its work."""
        return self._map(lambda tensor: tensor.pin_memory())

    def _map(self, function: Callable[[Tensor], Tensor]) -> GraphBatch:
        values: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self)}
        tensors = {name: function(value) for name, value in values.items() if isinstance(value, Tensor)}
        return GraphBatch(**{**values, **tensors})


def collate(columns: ExampleColumns, *, num_relations: int) -> GraphBatch:
    """The disjoint union of all rows of ``columns``; array work only, no loop over rows.

    Args:
        columns: rows that were checked when the dataset was built.
        num_relations: R, the relations without their inverses.
    """
    values, offsets = columns.values, columns.offsets
    counts = {group: offsets[group][1:] - offsets[group][:-1] for group in GROUPS}
    owners = {group: np.repeat(np.arange(len(count)), count) for group, count in counts.items() if group != "message"}
    node_start, edge_start = offsets["node"][:-1], offsets["edge"][:-1]

    # Every edge forwards, then every edge backwards: a message is an index into that.
    edges = int(offsets["edge"][-1])
    direction = np.empty((3, 2 * edges), dtype=np.int64)  # source, target, relation
    of_edge = np.repeat(node_start, counts["edge"])
    np.add(values["edge_source"], of_edge, out=direction[0, :edges])
    np.add(values["edge_target"], of_edge, out=direction[1, :edges])
    direction[2, :edges] = values["edge_relation"]
    direction[:2, edges:] = direction[1::-1, :edges]
    np.add(direction[2, :edges], num_relations, out=direction[2, edges:])
    backwards = values["message"] >= np.repeat(counts["edge"].astype(np.int32), counts["message"])
    message = np.repeat(edges - counts["edge"], counts["message"])
    message *= backwards
    message += np.repeat(edge_start, counts["message"])
    message += values["message"]
    edge_message = np.empty(2 * edges, dtype=np.int64)
    edge_message[message] = np.arange(2 * edges)
    clash_edge, clash_cell = find_clashes(*direction[:, :edges], nodes=len(owners["node"]), num_relations=num_relations)
    step = values["step"].astype(np.int64)
    token_branch = values["token_branch"].astype(np.int64)
    token_position = _positions_in_branch(owners["token"], token_branch)

    per_row = ("example_id", "kind", "answer_mode", "status", "hops", "answer_count", "answer_relation")
    arrays: dict[str, NDArray[Any]] = {name: values[name] for name in per_row}
    arrays |= {
        "is_twin": values["is_twin"] != 0,
        "node_graph": owners["node"],
        "node_entity": values["node_entity"],
        "edge_index": direction[:2, :edges],
        "edge_type_ids": direction[2, :edges],
        "edge_graph": owners["edge"],
        "message_source": direction[0].take(message),
        "message_target": direction[1].take(message),
        "message_relation": direction[2].take(message),
        "edge_message": edge_message.reshape(2, -1),
        "clash_edge": clash_edge,
        "clash_cell": clash_cell,
        "anchor_node": values["anchor"] + np.repeat(node_start, counts["anchor"]),
        "anchor_graph": owners["anchor"],
        "anchor_slot": _positions(offsets["anchor"], counts["anchor"]),
        "token_relation": values["token_relation"],
        "token_graph": owners["token"],
        "token_branch": token_branch,
        "token_position": token_position,
        "path_graph": owners["path"],
        "path_label": values["path_label"],
        "path_length": counts["step"],
        "step_path": owners["step"],
        "step_edge": (step >> 1) + np.repeat(np.repeat(edge_start, counts["path"]), counts["step"]),
        "step_reversed": (step & 1) != 0,
        "step_position": _positions(offsets["step"], counts["step"]),
        "answer_node": values["answer"] + np.repeat(node_start, counts["answer"]),
        "answer_graph": owners["answer"],
        "answer_entity": values["answer_entity"],
        "answer_entity_graph": owners["answer_entity"],
        "known_entity": values["known_entity"],
        "known_entity_graph": owners["known_entity"],
    }
    return GraphBatch(
        **{name: _tensor(array) for name, array in arrays.items()},
        longest_chain=int(token_position.max(initial=-1)) + 1,
        longest_path=int(counts["step"].max(initial=0)),
        num_links=int(np.count_nonzero(values["kind"] == _LINK_KIND)),
        num_relation_queries=int(np.count_nonzero(values["answer_mode"] == _RELATION_MODE)),
        num_aggregates=int(np.count_nonzero(values["answer_mode"] == _AGGREGATE_MODE)),
        num_supporting_steps=int(counts["step"][values["path_label"] == 1].sum()),
        num_node_pairs=int(np.square(counts["node"]).sum()),
    )


def _positions(offsets: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each value of a ragged column, its position within its row."""
    return np.arange(offsets[-1]) - np.repeat(offsets[:-1], counts)


def _positions_in_branch(graph: NDArray[np.int64], branch: NDArray[np.int64]) -> NDArray[np.int64]:
    """Position of each query token within its branch; tokens of a branch are adjacent."""
    index = np.arange(len(graph))
    starts = np.ones(len(graph), dtype=bool)
    starts[1:] = (graph[1:] != graph[:-1]) | (branch[1:] != branch[:-1])
    return index - np.maximum.accumulate(np.where(starts, index, 0))


def _tensor(array: NDArray[Any]) -> Tensor:
    if array.dtype != np.bool_:
        array = np.ascontiguousarray(array, dtype=np.int64)
    return torch.from_numpy(array)
