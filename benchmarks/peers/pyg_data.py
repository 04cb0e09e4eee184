"""Rows as torch-geometric data: one ``Data`` object a row, made ahead; batches by ``Batch.from_data_list``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from torch_geometric.data import Batch, Data

from hopline.graph import GraphBatch

FOLLOW = ["anchor_slot", "token_relation", "path_label", "answer_index"]


class Row(Data):
    """One row; what its indices count from in a batch."""

    def __inc__(self, key: str, value: Tensor, *args: object) -> int:
        if key == "step_path":
            return len(self.path_label)
        if key == "step_edge":
            return self.edge_index.shape[1]
        return super().__inc__(key, value, *args)


def make_row(batch: GraphBatch) -> Row:
    """The only row of a batch. Messages go both ways, as ``ToUndirected`` would make them."""
    return Row(
        num_nodes=batch.num_nodes,
        edge_index=batch.edge_index,
        edge_type=batch.edge_type_ids,
        message_index=torch.stack([batch.message_source, batch.message_target]),
        message_type=batch.message_relation,
        anchor_index=batch.anchor_node,
        anchor_slot=batch.anchor_slot,
        token_relation=batch.token_relation,
        token_branch=batch.token_branch,
        token_position=batch.token_position,
        path_label=batch.path_label,
        path_length=batch.path_length,
        step_path=batch.step_path,
        step_edge=batch.step_edge,
        step_reversed=batch.step_reversed,
        step_position=batch.step_position,
        answer_index=batch.answer_node,
        kind=batch.kind,
        answer_mode=batch.answer_mode,
        status=batch.status,
        answer_count=batch.answer_count,
        answer_relation=batch.answer_relation,
        is_twin=batch.is_twin,
        example_id=batch.example_id,
    )


class Rows(Dataset[list[Row]]):
    """Examples: a row, or a missing row and its twin."""

    def __init__(self, examples: Sequence[Sequence[GraphBatch]]) -> None:
        self.examples = [[make_row(row) for row in rows] for rows in examples]

    def __len__(self) -> int:
        return len(self.examples)

    def __getitem__(self, index: int) -> list[Row]:
        return self.examples[index]


@dataclass(frozen=True, slots=True)
class Order:
    """The same examples in the same order as everybody else; a batch sampler."""

    batches: Sequence[Sequence[int]]

    def __iter__(self) -> Iterator[Sequence[int]]:
        return iter(self.batches)

    def __len__(self) -> int:
        return len(self.batches)


def merge(examples: Sequence[Sequence[Row]]) -> Batch:
    """A batch of all rows of some examples."""
    return Batch.from_data_list([row for rows in examples for row in rows], follow_batch=FOLLOW)


def make_loader(rows: Rows, batches: Sequence[Sequence[int]], workers: int) -> DataLoader[Batch]:
    """Batches in order, merged here or by worker processes."""
    return DataLoader(
        rows,
        batch_sampler=Order(batches),  # type: ignore[arg-type]
        collate_fn=merge,
        num_workers=workers,
        prefetch_factor=4 if workers else None,
    )
