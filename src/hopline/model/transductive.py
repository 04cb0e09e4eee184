"""The transductive branch: entities known by name, scored all at once."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor, nn

__all__ = ["BilinearBranch", "mix_rankings"]

_STRUCTURE_WEIGHT: Final = 0.25
_OUTSIDE_SCORE: Final = -3.0
"""The structural score of an entity that the graph does not hold: about that of a node that is no answer."""


class BilinearBranch(nn.Module):
    """ComplEx (Trouillon et al. 2016) with reciprocal relations: the score of (h, r, t) is ``Re(h · r · conj(t))``.

    The 2R relation ids serve as they are: relation r + R answers ``(?, r, t)`` asked from t. Complex vectors of ``rank``
    numbers are stored as ``[real, imaginary]`` of width ``2 * rank``.
    """

    def __init__(self, *, num_entities: int, num_relations: int, rank: int, dropout: float) -> None:
        super().__init__()
        self.entity = nn.Embedding(num_entities, 2 * rank)
        self.relation = nn.Embedding(2 * num_relations, 2 * rank)
        for table in (self.entity, self.relation):
            nn.init.normal_(table.weight, std=rank**-0.5)
        self.dropout = nn.Dropout(dropout)

    def query(self, head: Tensor, relation: Tensor) -> Tensor:
        """``[K, 2 * rank]`` the vector ``h · r``, 0 where head is -1; its inner product with an entity's is the score."""
        vector = self.entity.weight.index_select(0, head.clamp(min=0)) * (head >= 0)[:, None]
        query: Tensor = self.dropout(_product(vector, self.relation.weight.index_select(0, relation)))
        return query

    def scores(self, head: Tensor, relation: Tensor) -> Tensor:
        """``[K, V]`` float32 score of every entity as the tail; head and relation are ``[K]``."""
        return (self.query(head, relation) @ self.entity.weight.t()).float()

    def relation_scores(self, head: Tensor, tail: Tensor, relations: int) -> Tensor:
        """``[K, relations]`` score of the first relations between two entities; 0 where one of them is unknown (-1)."""
        a = self.entity.weight.index_select(0, head.clamp(min=0))
        b = self.entity.weight.index_select(0, tail.clamp(min=0))
        a_re, a_im = a.chunk(2, -1)
        b_re, b_im = b.chunk(2, -1)
        pair = torch.cat([a_re * b_re + a_im * b_im, a_re * b_im - a_im * b_re], -1)
        known = ((head >= 0) & (tail >= 0))[:, None]
        return ((pair * known) @ self.relation.weight[:relations].t()).float()

    def penalty(self, head: Tensor, relation: Tensor, tail: Tensor) -> Tensor:
        """``[K]`` N3: the cubed moduli of the three vectors of a triple, summed (Lacroix et al. 2018)."""
        entity = _cubes(self.entity.weight)  # [V]
        return (
            entity.index_select(0, head.clamp(min=0))
            + _cubes(self.relation.weight).index_select(0, relation)
            + entity.index_select(0, tail.clamp(min=0))
        )


def mix_rankings(bilinear: Tensor, structure: Tensor, inside: Tensor) -> Tensor:
    """``[L, V]`` bilinear scores with structural ones added.

    The two weights are fixed. Learned with the rest they follow what both parts have memorised of the training triples: on
    UMLS the weight of the structure then grows from 0.25 to 0.56, and new triples rank worse.

    Args:
        bilinear, structure: ``[L, V]``.
        inside: bool ``[L, V]``, where there is a structural score.
    """
    return bilinear + _STRUCTURE_WEIGHT * torch.where(inside, structure, _OUTSIDE_SCORE)


def _product(a: Tensor, b: Tensor) -> Tensor:
    """Complex product."""
    a_re, a_im = a.chunk(2, -1)
    b_re, b_im = b.chunk(2, -1)
    return torch.cat([a_re * b_re - a_im * b_im, a_re * b_im + a_im * b_re], -1)


def _cubes(table: Tensor) -> Tensor:
    """``[rows]`` sum of cubed moduli."""
    real, imaginary = table.float().chunk(2, -1)
    return (real.square() + imaginary.square() + 1e-12).pow(1.5).sum(-1)
