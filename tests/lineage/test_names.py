from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopline.errors import DataError
from hopline.lineage.names import path_problem, paths_problem, validate_paths
from hopline.storage.keys import is_key


@pytest.mark.parametrize("path", ["config.json", "a/b-c/d_e.txt", "model-00001-of-00002.safetensors", "_x", "LICENSE"])
def test_ordinary_names_pass(path):
    assert path_problem(path) is None


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/etc/passwd",
        "../up",
        "a/../b",
        "a//b",
        "a/",
        "./a",
        ".hidden",
        "a\\b",
        "C:x",
        "-rf",
        "a b",
        "a\nb",
        "con",
        "x/NUL.txt",
        "dot.",
        "c\u043enfig.json",  # a Cyrillic o
        "cafe\u0301",
        "file\u202etxt",
        "manifest.json",
        "Manifest.JSON",
        "manifest.dsse.json",
    ],
)
def test_other_names_are_refused(path):
    assert path_problem(path) is not None
    with pytest.raises(DataError, match="rename"):
        validate_paths([path], source="here")


@pytest.mark.parametrize(
    "paths",
    [
        ["a", "A"],
        ["a", "a"],
        ["x/README.md", "X/readme.md"],
        ["a", "a/b"],
        ["A/b", "a"],
        ["a/b/c", "a/B"],
        ["x/a", "X/b"],
    ],
)
def test_names_that_meet_on_some_file_system_are_refused(paths):
    assert paths_problem(paths) is not None
    assert paths_problem(reversed(paths)) is not None


@given(st.text(max_size=20))
def test_whatever_passes_is_a_key(path):
    assert path_problem(path) is not None or is_key(path)
