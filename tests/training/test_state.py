"""Where a training stands."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hopline.errors import DataError
from hopline.training import CandidateRecord, TrainingState

NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
COUNTS = st.integers(0, 2**53 - 1)
CANDIDATES = st.builds(CandidateRecord, step=COUNTS, sha256=st.text("0123456789abcdef"), score=NUMBERS)
STATES = st.builds(
    TrainingState,
    step=COUNTS,
    samples_seen=COUNTS,
    best_score=st.none() | NUMBERS,
    best_step=st.none() | COUNTS,
    without_improvement=COUNTS,
    last_evaluation=st.none() | COUNTS,
    candidates=st.lists(CANDIDATES),
    applied_norms=st.lists(NUMBERS),
    applied_updates=COUNTS,
    skipped_updates=COUNTS,
    non_finite_updates=COUNTS,
    non_finite_in_a_row=COUNTS,
    interval=st.dictionaries(st.text("abc."), NUMBERS),
    scaler=st.dictionaries(st.text("abc_"), NUMBERS | COUNTS),
    stopped_early=st.booleans(),
    stop_reason=st.none() | st.text(),
)


@settings(deadline=None)
@given(state=STATES)
def test_everything_of_the_loop_survives_the_file(state: TrainingState) -> None:
    """G54, G57, D33, D34: data position, best score and step, patience, spike history, counters, loss scale, end."""
    again = TrainingState.parse(state.model_dump_json().encode(), source="state")
    assert again == state
    assert again.model_dump_json() == state.model_dump_json()


def test_two_states_share_nothing() -> None:
    """D34: a second training does not begin with the history of the first."""
    one, other = TrainingState(), TrainingState()
    one.applied_norms.append(1.0)
    one.interval["loss"] = 2.0
    one.scaler["scale"] = 3.0
    assert other == TrainingState()
    assert one != other


def test_a_saved_state_with_an_unknown_field_is_refused() -> None:
    """G63, D36: a state of another version is not half understood."""
    document = json.loads(TrainingState(step=3).model_dump_json())
    with pytest.raises(DataError, match="state 3: no training state of this version of Hopline: cursor: Extra inputs"):
        TrainingState.parse(json.dumps(document | {"cursor": 3}).encode(), source="state 3")


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b'{"step": "x"}', b'{"step": 1, "step": 2}', b'{"best_score": NaN}']
)
def test_what_is_no_state_is_one_clear_sentence(data: bytes) -> None:
    """G63."""
    with pytest.raises(DataError, match=r"^state 3: ") as caught:
        TrainingState.parse(data, source="state 3")
    assert "\n" not in str(caught.value)
