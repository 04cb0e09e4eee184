"""The exception tree."""

from __future__ import annotations

import re

import hopline.errors as errors


def test_the_docstring_draws_the_tree_as_it_is() -> None:
    drawn = re.findall(r"[├└]── (\w+)", errors.__doc__ or "")
    assert sorted([*drawn, "HoplineError"]) == sorted(errors.__all__)
    codes = {name: getattr(errors, name).exit_code for name in errors.__all__}
    assert {name: code for name, code in codes.items() if code != 2} == {
        "ClaimError": 1,
        "TrainingDivergedError": 3,
        "PeerLostError": 137,
        "TerminatedError": 143,
    }
