"""What reading is measured beside: a loop over examples, and torch-geometric."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from hopline.graph import GraphBatch

__all__ = ["OWNED", "bare_graph", "geometric_graphs", "join_examples"]

_NODES = ("edge_index", "message_source", "message_target", "anchor_node", "answer_node")
_GRAPHS = (
    "node_graph", "edge_graph", "anchor_graph", "token_graph", "path_graph", "answer_graph", "answer_entity_graph",
    "known_entity_graph",
)  # fmt: skip
_COUNTED = {
    **dict.fromkeys(_NODES, "node_graph"),
    **dict.fromkeys(_GRAPHS, "kind"),
    "step_edge": "edge_graph",
    "step_path": "path_graph",
}
"""Fields of a batch that number something, and a field that has one element for each of these things."""
_TENSORS = [name for name, kind in GraphBatch.__annotations__.items() if kind == "Tensor"]


def join_examples(examples: Sequence[GraphBatch]) -> dict[str, torch.Tensor]:
    """The tensors of many small batches as those of one: the loop that one writes first."""
    parts: dict[str, list[torch.Tensor]] = {}
    counts = dict.fromkeys(_COUNTED.values(), 0)
    for example in examples:
        for name in _TENSORS:
            value = getattr(example, name)
            if name in _COUNTED:
                value = value + counts[_COUNTED[name]]
            parts.setdefault(name, []).append(value)
        for name in counts:
            counts[name] += len(getattr(example, name))
    return {name: torch.cat(values, dim=-1) for name, values in parts.items()}


OWNED = ("edge_type", "anchor_index", "token_relation", "path_label", "answer_index", "answer_entity", "known_entity")
"""One attribute of each ragged group; a batch says of each of their elements which graph it is of."""


def geometric_graphs(example: GraphBatch) -> list[Any]:
    """The rows of an example as torch-geometric has graphs, with an attribute for each column of a shard."""
    from torch_geometric.data import Data

    found = []
    for row in range(example.num_graphs):
        node, edge, path = (example.node_graph == row, example.edge_graph == row, example.path_graph == row)
        first, token = int(torch.nonzero(node)[0]), example.token_graph == row
        graph = Data(
            num_nodes=int(node.sum()),
            edge_index=example.edge_index[:, edge] - first,
            edge_type=example.edge_type_ids[edge],
            entity=example.node_entity[node],
            message=torch.arange(2 * int(edge.sum())),
            anchor_index=example.anchor_node[example.anchor_graph == row] - first,
            token_relation=example.token_relation[token],
            token_branch=example.token_branch[token],
            path_label=example.path_label[path],
            path_length=example.path_length[path],
            step=example.step_edge[path[example.step_path]],
            answer_index=example.answer_node[example.answer_graph == row] - first,
            answer_entity=example.answer_entity[example.answer_entity_graph == row],
            known_entity=example.known_entity[example.known_entity_graph == row],
        )
        for name in (
            "example_id",
            "kind",
            "answer_mode",
            "status",
            "hops",
            "is_twin",
            "answer_count",
            "answer_relation",
        ):
            graph[name] = getattr(example, name)[row : row + 1]
        found.append(graph)
    return found


def bare_graph(graph: Any) -> Any:
    """What any model of graphs needs of a graph."""
    from torch_geometric.data import Data

    return Data(num_nodes=graph.num_nodes, entity=graph.entity, edge_index=graph.edge_index, edge_type=graph.edge_type)
