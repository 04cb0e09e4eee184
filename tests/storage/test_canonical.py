"""JSON at the edge: one form out, one meaning in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hopline.errors import DataError
from hopline.storage import canonical_json, parse_json

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53) + 1, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(VALUES)
def test_canonical_bytes_are_read_back_and_stay_the_same(value: object) -> None:
    data = canonical_json(value)
    assert parse_json(data, source="x") == value
    assert canonical_json(parse_json(data, source="x")) == data


def test_the_example_of_rfc_8785() -> None:
    value = {
        "numbers": [333333333.33333329, 1e30, 4.50, 2e-3, 0.000000000000000000000000001],
        "string": '\u20ac$\u000f\nA\'B"\\\\"/',
        "literals": [None, True, False],
    }
    assert (
        canonical_json(value)
        == (
            '{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],'
            '"string":"€$\\u000f\\nA\'B\\"\\\\\\\\\\"/"}'
        ).encode()
    )


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 2**53, {1: 2}, "\ud800", b"x", {"a": object}], ids=repr)
def test_what_has_no_canonical_form(value: object) -> None:
    with pytest.raises(DataError, match="canonical JSON"):
        canonical_json(value)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"a": 1, "b": 2, "a": 1}', "key 'a' stands twice"),
        (b'[{"b": {"x": 1, "\\u0078": 2}}]', "key 'x' stands twice"),
        (b"[NaN]", "NaN is not JSON"),
        (b"[-Infinity]", "-Infinity is not JSON"),
        (b"[1e999]", "1e999 is too large"),
        (b"[" + b"9" * 5000 + b"]", "4300"),
        (b'"\xff"', "not UTF-8 text .byte 1 is 0xff"),
        ("{}".encode("utf-16"), "not UTF-8"),
        (b"\xef\xbb\xbf{}", "BOM"),
        (b"", "is empty"),
        (b" \n", "is empty"),
        (b'{"a": 1,}', "is not JSON: .* line 1"),
        (b"{} {}", "is not JSON: Extra data"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a":' * 100_000, "nested too deeply"),
        (b'["\\ud800"]', "half of a surrogate pair"),
        (b'{"\\udfff": 1}', "half of a surrogate pair"),
    ],
    ids=lambda value: repr(value)[:24],
)
def test_untrusted_json_is_refused_in_one_line_that_names_the_source(data: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message) as error:
        parse_json(data, source="models/m/manifest.json")
    assert str(error.value).startswith("models/m/manifest.json: ")
    assert "\n" not in str(error.value)


def test_integers_stay_exact_and_long_canonical_floats_stay_floats() -> None:
    for value in (2**53 - 1, 2**53 + 1, 2**64 - 1, 10**30):
        parsed = parse_json(str(value).encode(), source="x")
        assert (parsed, type(parsed)) == (value, int)
    for number in (2.0**53, 1.2538740179998818e17, -1e20):
        parsed = parse_json(canonical_json(number), source="x")
        assert (parsed, type(parsed)) == (number, float)


def test_a_whole_surrogate_pair_is_a_character() -> None:
    assert parse_json(b'"\\ud83d\\ude00"', source="x") == "\U0001f600"


def test_too_many_bytes() -> None:
    assert parse_json(b"[1]", source="x", max_bytes=3) == [1]
    with pytest.raises(DataError, match="x: 4 bytes of JSON, more than the 3"):
        parse_json(b"[12]", source="x", max_bytes=3)
