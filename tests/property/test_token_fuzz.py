"""Tokens nobody gave: known for none, at once, and without an exception that would end the turn."""

import base64
import hashlib
import hmac
import json
import tempfile
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvstack.component.line_log.line_logger import LineLogger
from kvstore.auth.tokens import SimpleTokens
from kvstore.server.auth.jwt import TOKEN_BYTES_MAX, JwtKeys
from tests.support.node.harness import FakeClock

SECRET = b"a secret of 64 bytes that nobody else has, and nobody will guess!"
LOGGER, CLOCK = LineLogger([], "info"), FakeClock()
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=5,
)
HEADS = st.fixed_dictionaries(
    {"alg": st.sampled_from(["HS256", "none", "None", "HS512", "RS256", "ES256", ""]) | JSON},
    optional={"typ": JSON, "kid": JSON, "crit": JSON, "b64": JSON, "jwk": JSON, "x5c": JSON},
)
CLAIMS = st.fixed_dictionaries(
    {},
    optional={
        "username": st.just("root") | JSON,
        "revision": st.integers(-2, 2**64) | JSON,
        "exp": st.integers(-(2**70), 2**70) | JSON,
        "nbf": JSON,
        "iat": JSON,
    },
)


@cache
def keys() -> JwtKeys:
    with tempfile.NamedTemporaryFile() as file:
        file.write(SECRET)
        file.flush()
        return JwtKeys.of_options({"sign-method": "HS256", "priv-key": file.name}, LOGGER, CLOCK)


def encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def signed(head: bytes, body: bytes) -> str:
    text = f"{encoded(head)}.{encoded(body)}"
    return f"{text}.{encoded(hmac.digest(SECRET, text.encode(), hashlib.sha256))}"


@settings(max_examples=300)
@given(HEADS, CLAIMS)
def test_what_is_signed_may_be_anything(head: dict[str, object], claims: dict[str, object]) -> None:
    """Only a name and a revision that are some are believed, under the configured method alone."""
    found = keys().verify(signed(json.dumps(head).encode(), json.dumps(claims).encode()))
    if found is not None:
        assert head["alg"] == "HS256"
        assert found.username == claims["username"]
        assert 0 <= found.revision < 2**63


@settings(max_examples=300)
@given(st.data())
def test_a_good_token_that_was_changed(data: st.DataObject) -> None:
    token = keys().sign("alice", 7)
    at = data.draw(st.integers(0, len(token) - 1))
    change = data.draw(st.sampled_from(["cut", "drop", "twice", "other"]))
    other = data.draw(st.characters(codec="utf-8"))
    changed = {
        "cut": token[:at],
        "drop": token[:at] + token[at + 1 :],
        "twice": token[:at] + token[at] + token[at:],
        "other": token[:at] + other + token[at + 1 :],
    }[change]
    found = keys().verify(changed)
    # The last letter of a part holds bits that count for nothing.
    assert found is None or (found.username, found.revision) == ("alice", 7)


@settings(max_examples=200)
@given(st.text(max_size=40) | st.text("abc.=_-", max_size=40))
def test_any_text(text: str) -> None:
    assert keys().verify(text) is None
    simple = SimpleTokens(300, lambda: "abcdefghijklmnop")
    simple.assign("alice", simple.new_prefix(), 12, 0)
    assert simple.identify(text, 1, 0, 0) is None
    assert simple.waits_for(text) >= 0


@pytest.mark.parametrize("opened", ["[", '{"a":'])
def test_depths_without_end(opened: str) -> None:
    deep = (opened * 20_000).encode()
    for size in (2000, 5000, len(deep)):
        head = encoded(b'{"alg":"HS256"}')
        for token in (
            signed(deep[:size], b"{}"),
            signed(b'{"alg":"HS256"}', deep[:size]),
            f"{encoded(deep[:size])}.{head}.x",
        ):
            assert keys().verify(token) is None
    assert keys().verify("a." * TOKEN_BYTES_MAX) is None
