"""Keys: whatever a stranger writes, it stays inside the root or is refused."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hopline.errors import ConfigError
from hopline.storage import open_object, open_store, validate_key
from hopline.storage.keys import is_key, validate_prefix

TRICKY = st.lists(
    st.one_of(
        st.sampled_from(["..", ".", "/", "\\", "", ".tmp-", "\0", "\n", "%2e%2e", "~", "é", "a", "…"]),
        st.text(max_size=5),
    ),
    max_size=6,
).map("".join)


@given(TRICKY)
@example("../etc/passwd")
@example("a/../../etc")
@example("/etc/passwd")
@example("\u2028")
@example("\ud800")
@example("x" * 256)
@example("/".join(["x" * 100] * 10))
def test_any_text_is_refused_or_comes_back_under_its_own_name(key: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "root")
        store = open_store(str(root))
        if not is_key(key):
            for attempt in (validate_key, store.head, lambda key: store.put_bytes(key, b"x")):
                with pytest.raises(ConfigError) as error:
                    attempt(key)
                assert "\n" not in str(error.value)
            assert not root.exists()
            return
        assert validate_key(key) == key
        store.put_bytes(key, b"x")
        assert [info.key for info in store.list()] == [key]
        path = store.local_path(key)
        assert path is not None
        assert path.resolve().is_relative_to(root.resolve())
        other, name = open_object(store.uri(key))
        assert other.get_bytes(name) == b"x"


def test_a_prefix_may_be_empty_or_end_with_a_slash() -> None:
    for prefix in ("", "a", "a/", "a/b"):
        assert validate_prefix(prefix) == prefix
    for prefix in ("/", "//", "a//", "..", "../"):
        with pytest.raises(ConfigError):
            validate_prefix(prefix)
