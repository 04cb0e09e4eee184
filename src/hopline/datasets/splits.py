"""The four splits, and the rules that say what belongs to which.

Every rule is a salted hash of the thing itself: of a triple's or an entity's name, of a query, of a chain of relations, of a
line. So an item stays in its split while the source grows around it, and no list of who is where has to be kept.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

from hopline.config import DatasetConfig
from hopline.datasets.draws import hash64, threshold
from hopline.datasets.rulebook import Chain, invert_chain

__all__ = ["SPLITS", "NameSplits", "QuerySplits", "is_calibration", "split_rule"]

SPLITS: Final = ("train", "valid", "calibration", "test")
"""Every split, in canonical order."""

_KEPT: Final = ("valid", "calibration", "test", "train")
_BOUNDS: Final = (threshold(0.1), threshold(0.2), threshold(0.3))


class QuerySplits:
    """Assigns queries to splits by a salted hash of their canonical form, so that no query is in two splits.

    Three tenths of all queries are kept for valid, calibration and test; how many examples each split gets is
    another matter. What is hashed follows ``dataset.query_split``.

    Args:
        config: the section.
        num_relations: R, for chains that are read backwards.
    """

    def __init__(self, config: DatasetConfig, num_relations: int) -> None:
        self._salt = f"hopline-query-split:{config.salt}".encode()
        self._signature_salt = f"hopline-signature-split:{config.salt}".encode()
        self._rule = config.query_split
        self._longest = config.max_hops
        self._own_graphs = config.triple_split == "entity"
        self._num_relations = num_relations

    def key(self, *numbers: int) -> int:
        """The 64-bit key of a query in canonical form."""
        return hash64(self._salt, *numbers)

    @staticmethod
    def split(key: int) -> str:
        """The split that queries of this key belong to."""
        return _KEPT[bisect_right(_BOUNDS, key)]

    def holds(self, split: str, key: int, chains: Sequence[Chain]) -> bool:
        """Whether a query with this key and these chains belongs to a split.

        By signature, every chain of two hops or more must be one of the split's; a single relation is no composition and
        may be asked for anywhere. By length, test has the long chains and none but those. A query without chains, which
        asks for a relation, is divided by its key in every case. Where splits share no entity, queries from different
        graphs cannot be equal, and the key only has to tell calibration from valid.
        """
        if self._rule == "signature" and (composed := [chain for chain in chains if len(chain) > 1]):
            return all(self.signature_split(chain) == split for chain in composed)
        if self._rule == "length" and chains:
            is_long = max(map(len, chains)) > self._longest
            if is_long or split == "test":
                return is_long and split == "test"
        return self._by_key(split, key)

    def signature_split(self, chain: Chain) -> str:
        """The split of a chain of relations; a chain and the one that leads back are the same composition."""
        canonical = min(chain, invert_chain(chain, self._num_relations))
        return self.split(hash64(self._signature_salt, *canonical))

    def _by_key(self, split: str, key: int) -> bool:
        if self._own_graphs:
            return split in ("train", "test") or (split == "calibration") == bool(key & 1)
        return self.split(key) == split


class NameSplits:
    """Assigns what has a name, or a text, to train, valid or test by a salted hash of it."""

    def __init__(self, config: DatasetConfig, purpose: str) -> None:
        self._salt = f"hopline-{purpose}-split:{config.salt}".encode()[:64]
        self._valid = threshold(config.valid_share)
        self._test = threshold(config.valid_share + config.test_share)

    def number(self, *names: str) -> int:
        """The 64-bit hash of an item with these names, the order of which counts."""
        digest = hashlib.blake2b(digest_size=8, key=self._salt)
        for name in names:
            data = name.encode("utf-8", "surrogatepass")
            digest.update(len(data).to_bytes(8, "little"))
            digest.update(data)
        return int.from_bytes(digest.digest(), "little")

    def split(self, *names: str) -> str:
        """The split of an item with these names."""
        number = self.number(*names)
        return "valid" if number < self._valid else "test" if number < self._test else "train"

    def of_triple(self, head: str, relation: str, tail: str) -> str:
        """The split of a triple, the same as that of its reverse."""
        return self.split(relation, min(head, tail), max(head, tail))


def is_calibration(seed: int, share: float, *numbers: int) -> bool:
    """Whether an item of valid, given as integers, is carved out for calibration."""
    return hash64(f"hopline-calibration:{seed}".encode(), *numbers) < threshold(share)


_TRIPLES: Final = {
    "given": "triples keep the split of their file",
    "triple": "triples are divided by a salted hash of each, a triple and its reverse together",
    "entity": "entities are divided by a salted hash of each, and a triple is in the split of both of its entities",
}
_QUERIES: Final = {
    "query": "by a salted hash of the query",
    "signature": "by a salted hash of its chain of relations",
    "length": "by its hops, the longer ones for test, and otherwise by a salted hash of the query",
}


def split_rule(config: DatasetConfig, *, from_examples: bool) -> str:
    """How a dataset was divided, in words for its manifest. ``from_examples``: the source holds examples, not triples."""
    if config.source == "synthetic":
        rule = "examples are drawn for each split by a counter"
        return f"{rule}; test has longer chains than the others" if config.query_split == "length" else rule
    if from_examples:
        return f"lines keep the split that they name; any other is divided {_QUERIES[config.query_split]}"
    return f"{_TRIPLES[config.triple_split]}; a generated query is divided {_QUERIES[config.query_split]}"
