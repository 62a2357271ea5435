"""Tokens of pages: any text is a token or is refused."""

import json
from base64 import urlsafe_b64encode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstack.apiserver.registry.continue_token import (
    LATEST,
    Position,
    TokenError,
    after,
    decode,
    encode,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda each: (
        st.lists(each, max_size=3) | st.dictionaries(st.text(max_size=4), each, max_size=3)
    ),
    max_leaves=6,
)
MEMBERS = st.fixed_dictionaries(
    {}, optional={"v": JSON | st.just("meta.k8s.io/v1"), "rv": JSON, "start": JSON | st.text()}
)
NAMES = st.text(alphabet="abc.-0", min_size=1, max_size=20).filter(lambda name: set(name) != {"."})


@given(revision=st.integers(min_value=1, max_value=1 << 62) | st.just(LATEST), key=NAMES)
def test_what_was_written_is_read(revision: int, key: str) -> None:
    assert decode(after(revision, key)) == Position(revision, f"{key}\0")
    assert decode(encode(revision, key)) == Position(revision, key)


def position_of(token: str) -> Position | None:
    """Return the position of a token; None: it was refused."""
    try:
        return decode(token)
    except TokenError:
        return None


@given(st.text(max_size=60) | st.text(alphabet="eyJ2IjoibWV0YS5r", max_size=60))
def test_any_text_is_a_token_or_refused(token: str) -> None:
    position_of(token)


@given(MEMBERS | JSON)
def test_any_content_is_a_position_or_refused(content: Any) -> None:
    token = urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")
    found = position_of(token)
    if found is not None:
        assert isinstance(found.revision, int)
        assert isinstance(found.start, str)
        assert ".." not in found.start.split("/")


@pytest.mark.parametrize("depth", [100, 100_000])
def test_deep_content_is_refused(depth: int) -> None:
    assert position_of(urlsafe_b64encode(b"[" * depth).decode().rstrip("=")) is None
