"""The log of a run."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hopline.errors import DataError
from hopline.training import StepLog

NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
RECORDS = st.fixed_dictionaries(
    {
        "step": st.integers(0, 2**53 - 1),
        "loss": st.none() | NUMBERS,
        "components": st.dictionaries(st.text("abcé."), NUMBERS),
    }
)


@settings(deadline=None)
@given(records=st.lists(RECORDS))
def test_records_come_back_in_order_and_unchanged(records) -> None:
    """G38, D24, D49: a log that is resumed is the log that was saved, every number to the bit."""
    log = StepLog()
    for record in records:
        log.append(record)
    again = StepLog.parse(log.to_bytes(), source="log")
    assert again.records() == log.records() == records
    assert again.to_bytes() == log.to_bytes()


def test_a_log_is_one_canonical_object_a_line() -> None:
    """D49: a file that other tools read line by line."""
    log = StepLog()
    log.append({"step": 2, "loss": 0.5})
    log.append({"loss": None, "step": 4})
    assert log.to_bytes() == b'{"loss":0.5,"step":2}\n{"loss":null,"step":4}\n'
    assert StepLog().to_bytes() == b""


def test_what_was_appended_is_a_copy() -> None:
    record = {"step": 1, "components": {"link": 1.0}}
    log = StepLog()
    log.append(record)
    record["components"]["link"] = 2.0
    assert log.records()[0]["components"] == {"link": 1.0}


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_number_that_is_not_finite_is_not_written(value: float) -> None:
    """D2: whoever reads the log reads JSON."""
    log = StepLog()
    with pytest.raises(DataError, match="cannot be written"):
        log.append({"step": 1, "loss": value})
    assert log.records() == []


@pytest.mark.parametrize("data", [b'{"step":1}\n{"st', b"\xff\n", b"3\n", b"\n"])
def test_a_damaged_log_is_one_clear_sentence(data: bytes) -> None:
    """G63."""
    with pytest.raises(DataError, match="state 4: the step log is damaged") as caught:
        StepLog.parse(data, source="state 4")
    assert "\n" not in str(caught.value)


def test_a_diverging_loss_is_read_as_the_number_it_was() -> None:
    """D24: in canonical JSON a large float looks like an integer of another value."""
    loss = 6.794172353306583e16
    log = StepLog()
    log.append({"loss": loss})
    assert StepLog.parse(log.to_bytes(), source="log").records() == [{"loss": loss}]


def test_a_log_that_was_read_goes_on() -> None:
    """D33."""
    log = StepLog.parse(b'{"step":1}\n', source="log")
    log.append({"step": 2})
    assert [record["step"] for record in log.records()] == [1, 2]
    assert [json.loads(line)["step"] for line in log.to_bytes().splitlines()] == [1, 2]
