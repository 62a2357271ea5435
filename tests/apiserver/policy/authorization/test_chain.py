"""Several authorizers one after another."""

import asyncio
from collections.abc import Awaitable

from kvstack.apimachinery.attributes import PRIVILEGED, Attributes, User
from kvstack.apiserver.policy.authorization.chain import AlwaysAllow, AlwaysDeny, Chain, decided
from kvstack.apiserver.policy.interfaces import NO_OPINION, Decision

ASKED = Attributes(User("bob"), "get", resource="pods")
DENIED = Decision(allowed=False, denied=True, reason="no")


class Says:
    """Always says the same, at once or after a moment."""

    def __init__(self, name: str, decision: Decision, *, waits: bool = False) -> None:
        self.name = name
        self.asked = 0
        self._decision = decision
        self._waits = waits

    def authorize(self, _attributes: Attributes) -> Decision | Awaitable[Decision]:
        self.asked += 1
        return self._later() if self._waits else self._decision

    async def _later(self) -> Decision:
        await asyncio.sleep(0)
        return self._decision


def ask(*members: Says | AlwaysAllow | AlwaysDeny, attributes: Attributes = ASKED) -> Decision:
    async def run() -> Decision:
        return await decided(Chain(members), attributes)

    return asyncio.run(run())


def test_the_first_opinion_counts() -> None:
    for waits in (False, True):
        last = Says("last", Decision(allowed=True))
        allowed = Says("a", Decision(allowed=True, reason="because"), waits=waits)
        assert ask(Says("none", NO_OPINION, waits=waits), allowed, last).reason == "because"
        assert ask(Says("none", NO_OPINION), Says("d", DENIED, waits=waits), last) == DENIED
        assert last.asked == 0


def test_reasons_and_errors_of_all_are_reported() -> None:
    for waits in (False, True):
        one = Says("one", Decision(allowed=False, reason="r1"), waits=waits)
        two = Says("two", Decision(allowed=False, reason="r2", error="e2"))
        assert ask(one, Says("quiet", NO_OPINION), two) == Decision(
            allowed=False, reason="one: r1\ntwo: r2", error="e2"
        )
        assert ask(Says("a", NO_OPINION, waits=waits), Says("b", NO_OPINION, waits=waits)) == (
            NO_OPINION
        )


def test_the_privileged_are_allowed_before_anybody_is_asked() -> None:
    denies = Says("d", DENIED)
    root = ASKED._replace(user=User("root", groups=("a", PRIVILEGED)))
    assert ask(denies, attributes=root) == Decision(allowed=True)
    assert denies.asked == 0


def test_nothing_is_waited_for_that_answers_at_once() -> None:
    assert Chain([Says("a", NO_OPINION), AlwaysAllow()]).authorize(ASKED) == Decision(allowed=True)


def test_fixed_ones() -> None:
    assert ask(AlwaysDeny()) == Decision(
        allowed=False, reason="alwaysdeny: Everything is forbidden."
    )
    assert ask(AlwaysDeny(), AlwaysAllow()).allowed
