import pytest

from kvstore.auth import tokens as module
from kvstore.auth.tokens import Claims, NoTokens, SignedTokens, SimpleTokens
from kvstore.errors import AUTH_FAILED, VERIFY_ONLY

S = 1_000_000_000


def simple(ttl_s: int = 10) -> SimpleTokens:
    return SimpleTokens(ttl_s, lambda: "p")


def test_a_token_lives_for_a_while_after_its_last_use() -> None:
    tokens = simple()
    assert tokens.assign("u", "p", 13, 0) == "p.13"
    assert tokens.identify("p.13", 5, 9 * S, 0) == ("u", 5)
    assert tokens.identify("p.13", 6, 18 * S, 0) == ("u", 6)
    assert tokens.identify("p.13", 6, 28 * S, 0) is None
    assert tokens.identify("p.13", 6, 18 * S, 0) is None, "gone for good"


def test_no_ttl_means_five_minutes() -> None:
    tokens = simple(0)
    tokens.assign("u", "p", 1, 0)
    assert tokens.identify("p.1", 1, 299 * S, 0) is not None
    assert tokens.identify("p.1", 1, 599 * S, 0) is None


def test_old_tokens_are_dropped_when_new_ones_are_assigned() -> None:
    tokens = simple()
    tokens.assign("u", "a", 1, 0)
    tokens.assign("u", "b", 2, 5 * S)
    tokens.identify("a.1", 1, 6 * S, 0)  # used since: now at the end of the line
    tokens.assign("u", "c", 3, 15 * S)
    assert len(tokens) == 2
    assert tokens.identify("b.2", 1, 15 * S, 0) is None
    assert tokens.identify("a.1", 1, 15 * S, 0) is not None


def test_the_number_of_tokens_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TOKENS_MAX", 3)
    tokens = simple()
    for number in range(5):
        tokens.assign("u", "p", number, 0)
    assert len(tokens) == 3
    assert tokens.identify("p.1", 1, 0, 0) is None
    assert tokens.identify("p.4", 1, 0, 0) is not None


@pytest.mark.parametrize(
    ("token", "index"),
    [
        ("abc.13", 14),
        ("abc", 0),
        ("abc.", 0),
        ("a.b.13", 0),
        ("abc.-1", 0),
        ("abc.1x", 0),
        ("abc.\u0661", 0),  # a digit, but none of Go's
        ("abc.18446744073709551615", 2**64),
        ("abc.18446744073709551616", 0),
        ("abc." + "9" * 5000, 0),
    ],
)
def test_an_unknown_token_waits_for_its_index(token: str, index: int) -> None:
    assert simple().waits_for(token) == index


def test_a_known_token_waits_for_nothing() -> None:
    tokens = simple()
    tokens.assign("u", "p", 13, 0)
    assert tokens.waits_for("p.13") == 0


class Keys:
    """Keys whose verdicts the test sets."""

    can_sign = True

    def __init__(self) -> None:
        self.known: dict[str, Claims] = {}
        self.asked: list[str] = []

    def sign(self, username: str, revision: int) -> str:
        raise AssertionError("not in the turn")

    def verify(self, token: str) -> Claims | None:
        self.asked.append(token)
        return self.known.get(token)


def test_a_signed_token_is_verified_once() -> None:
    keys = Keys()
    keys.known["t"] = Claims("u", 7, None, None)
    tokens = SignedTokens(keys)
    assert tokens.identify("t", 99, 0, 0) == ("u", 7), "its own revision"
    assert tokens.identify("t", 99, 0, 0) == ("u", 7)
    assert tokens.identify("other", 99, 0, 0) is None
    assert tokens.identify("other", 99, 0, 0) is None
    assert keys.asked == ["t", "other", "other"]
    assert tokens.assign("u", "", 1, 0) == ""


def test_a_signed_tokens_time_is_checked_every_time() -> None:
    keys = Keys()
    keys.known["t"] = Claims("u", 7, 100, 50)
    tokens = SignedTokens(keys)
    assert tokens.identify("t", 1, 0, 49_999) is None
    assert tokens.identify("t", 1, 0, 50_000) is not None
    assert tokens.identify("t", 1, 0, 99_999) is not None
    assert tokens.identify("t", 1, 0, 100_000) is None


def test_the_number_of_verified_tokens_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REMEMBERED_MAX", 2)
    keys = Keys()
    tokens = SignedTokens(keys)
    for name in "abc":
        keys.known[name] = Claims(name, 1, None, None)
        tokens.identify(name, 1, 0, 0)
    keys.asked.clear()
    tokens.identify("c", 1, 0, 0)
    tokens.identify("a", 1, 0, 0)
    assert keys.asked == ["a"]


def test_a_public_key_alone_signs_nothing() -> None:
    keys = Keys()
    keys.can_sign = False
    assert SignedTokens(keys).assign("u", "", 1, 0) == VERIFY_ONLY


def test_without_tokens_nobody_logs_in() -> None:
    assert NoTokens().assign("u", "", 1, 0) == AUTH_FAILED
    assert NoTokens().identify("t", 1, 0, 0) is None
