"""Tokens of a file, and the chain of all who know tokens."""

from collections.abc import Awaitable, Sequence

import pytest

from kvstack.apimachinery.attributes import AUTHENTICATED, User
from kvstack.apiserver.policy.authentication.results import (
    AuthenticationError,
    Found,
    Identified,
)
from kvstack.apiserver.policy.authentication.token_chain import (
    REMEMBERED_MAX,
    TOKEN_LENGTH_MAX,
    TokenChain,
)
from kvstack.apiserver.policy.authentication.token_file import StaticTokens, read_token_file
from tests.apiserver.policy.clocks import FakeClock
from tests.apiserver.policy.waiting import result

FILE = """t1,alice,1
t2,bob,2,devs
t3,carol,3,"devs,ops",more

t2,"bo""b",2
,nobody,4
"""


def test_file() -> None:
    assert read_token_file(FILE.splitlines(), "f") == {
        "t1": User("alice", "1"),
        "t2": User('bo"b', "2"),
        "t3": User("carol", "3", ("devs", "ops")),
    }


def test_file_with_too_few_columns() -> None:
    text = r"token file 'f' must have at least 3 columns \(token, user name, user uid\), found 2"
    with pytest.raises(ValueError, match=text):
        read_token_file(["t,alice"], "f")


def test_static_tokens_are_for_the_api() -> None:
    known = StaticTokens({"t": User("alice")}, ("api", "other"))
    assert known.authenticate("t", ("api",)) == Identified(User("alice"), ("api",))
    assert known.authenticate("t", ("elsewhere",)) is None
    assert known.authenticate("T", ("api",)) is None
    assert StaticTokens({"t": User("alice")}, ()).authenticate("t", ("x",)) is not None


class Scripted:
    """An authenticator that says what it is told, and counts."""

    def __init__(self, said: Found | Exception, *, waits: bool = False) -> None:
        self.said = said
        self.waits = waits
        self.asked = 0

    def authenticate(self, token: str, audiences: Sequence[str]) -> Found | Awaitable[Found]:
        self.asked += 1
        return self._later() if self.waits else self._now()

    async def _later(self) -> Found:
        return self._now()

    def _now(self) -> Found:
        if isinstance(self.said, Exception):
            raise self.said
        return self.said


def bad(text: str) -> AuthenticationError:
    return AuthenticationError(text)


FOUND = Identified(User("bob", groups=("devs",)), ("api",))


@pytest.mark.parametrize("waits", [False, True])
def test_first_that_knows_decides(*, waits: bool) -> None:
    members = [
        Scripted(None, waits=waits),
        Scripted(bad("no"), waits=waits),
        Scripted(FOUND, waits=waits),
        Scripted(bad("never asked")),
    ]
    found = result(TokenChain(members, FakeClock()).authenticate("t", ("api",)))
    assert found.user == User("bob", groups=("devs", AUTHENTICATED))
    assert [each.asked for each in members] == [1, 1, 1, 0]


@pytest.mark.parametrize("waits", [False, True])
def test_errors_are_reported_together(*, waits: bool) -> None:
    members = [Scripted(bad("one"), waits=waits), Scripted(None), Scripted(bad("two"), waits=waits)]
    with pytest.raises(AuthenticationError) as caught:
        result(TokenChain(members, FakeClock()).authenticate("t", ("api",)))
    assert str(caught.value) == "[invalid bearer token, one, two]"


def test_nobody_knows_it() -> None:
    with pytest.raises(AuthenticationError) as caught:
        result(TokenChain([Scripted(None)], FakeClock()).authenticate("t", ()))
    assert str(caught.value) == "invalid bearer token"


def test_success_is_remembered_for_ten_seconds() -> None:
    clock, member = FakeClock(), Scripted(FOUND)
    chain = TokenChain([member], clock)
    for _ in range(3):
        result(chain.authenticate("t", ("api",)))
    assert member.asked == 1
    result(chain.authenticate("t", ("other",)))
    assert member.asked == 2
    member.said = bad("revoked")
    clock.seconds += 9.9
    assert result(chain.authenticate("t", ("api",))).user.name == "bob"
    clock.seconds += 0.2
    with pytest.raises(AuthenticationError):
        result(chain.authenticate("t", ("api",)))


def test_failure_is_not_remembered() -> None:
    member = Scripted(bad("no"))
    chain = TokenChain([member], FakeClock())
    with pytest.raises(AuthenticationError):
        result(chain.authenticate("t", ("api",)))
    member.said = FOUND
    assert result(chain.authenticate("t", ("api",))).user.name == "bob"


def test_memory_has_a_bound() -> None:
    member = Scripted(FOUND)
    chain = TokenChain([member], FakeClock())
    for number in range(REMEMBERED_MAX + 1):
        result(chain.authenticate(f"t{number}", ("api",)))
    assert len(chain._remembered) <= REMEMBERED_MAX


def test_very_long_texts_are_not_looked_at() -> None:
    member = Scripted(FOUND)
    with pytest.raises(AuthenticationError):
        result(TokenChain([member], FakeClock()).authenticate("t" * (TOKEN_LENGTH_MAX + 1), ()))
    assert member.asked == 0
