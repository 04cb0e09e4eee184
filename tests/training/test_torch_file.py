"""Files of torch.save, read without running anything; the attacks are in tests/attacks."""

from __future__ import annotations

from collections import Counter, OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hopline.errors import DataError
from hopline.storage import sha256_file
from hopline.training.torch_file import load_torch_file


def test_what_a_checkpoint_may_hold_comes_back(tmp_path: Path) -> None:
    types = (torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.uint8, torch.bool)
    document: dict[str, Any] = {
        "tensors": OrderedDict((str(kind), torch.arange(6).reshape(2, 3).to(kind)) for kind in types),
        "parameter": torch.nn.Parameter(torch.ones(2)),
        "part": torch.arange(10.0)[2:5],
        "turned": torch.arange(6.0).reshape(2, 3).t(),
        "plain": {"a": [1, 2.5, None, True, "text"], 3: (4, 5)},
        "size": torch.Size([2, 3]),
    }
    torch.save(document, tmp_path / "file.pt")
    found = load_torch_file(tmp_path / "file.pt")
    assert found.keys() == document.keys()
    for name, tensor in document["tensors"].items():
        assert found["tensors"][name].dtype == tensor.dtype
        assert torch.equal(found["tensors"][name], tensor)
    for name in ("parameter", "part", "turned"):
        assert torch.equal(found[name], document[name])
    assert (found["plain"], found["size"]) == (document["plain"], document["size"])


def test_tensors_are_mapped_and_the_file_is_never_written(tmp_path: Path) -> None:
    """D42: nothing is copied; whoever writes into a tensor writes into its own memory."""
    path = tmp_path / "file.pt"
    torch.save({"a": torch.zeros(1000)}, path)
    before = sha256_file(path)
    found = load_torch_file(path)
    found["a"].add_(1)
    assert float(found["a"].sum()) == 1000
    assert sha256_file(path) == before
    assert not load_torch_file(path)["a"].any()


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (np.zeros(2), "_reconstruct"),
        (Counter("ab"), "collections.Counter"),
        (torch.float32, "torch.float32"),
        (Path("a"), "pathlib"),
        (torch.nn.Linear(2, 2), "torch.nn.modules.linear.Linear"),
        ({1, 2}, "set"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_a_checkpoint_does_not_need_is_named(value: Any, name: str, tmp_path: Path) -> None:
    torch.save({"a": value}, tmp_path / "file.pt")
    with pytest.raises(DataError, match=name) as caught:
        load_torch_file(tmp_path / "file.pt")
    assert "nothing was run" in str(caught.value)


def test_nesting_without_end_is_refused(tmp_path: Path) -> None:
    nested: list[Any] = []
    for _ in range(100):
        nested = [nested]
    torch.save({"a": nested}, tmp_path / "file.pt")
    with pytest.raises(DataError, match="too many values, or too deep"):
        load_torch_file(tmp_path / "file.pt")


def test_a_value_that_holds_itself_is_refused(tmp_path: Path) -> None:
    endless: list[Any] = []
    endless.append(endless)
    torch.save({"a": endless}, tmp_path / "file.pt")
    with pytest.raises(DataError, match="too many values, or too deep"):
        load_torch_file(tmp_path / "file.pt")


def test_lists_that_hold_each_other_again_and_again_are_refused(tmp_path: Path) -> None:
    """A few hundred bytes that a careless reader goes through for years."""
    laughs: list[Any] = ["ha"]
    for _ in range(20):
        laughs = [laughs] * 10
    torch.save({"a": laughs}, tmp_path / "file.pt")
    assert (tmp_path / "file.pt").stat().st_size < 4000
    with pytest.raises(DataError, match="too many values"):
        load_torch_file(tmp_path / "file.pt")
