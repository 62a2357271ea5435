"""The chain of authorizers.

    system:masters? ──no──► node ──no opinion──► rbac ──no opinion──► refused, with all reasons

The first that allows or denies decides. If none does, the request is refused; the reasons of all
members are reported, each after the name of its authorizer.
"""

from collections import Counter
from collections.abc import Awaitable, Sequence
from typing import Final, Protocol, TypeAlias

from kvstack.apimachinery.attributes import PRIVILEGED, Attributes, User
from kvstack.apiserver.policy.authorization.user_rules import UserRules
from kvstack.apiserver.policy.interfaces import NO_OPINION, Authorizer, Decision

ALLOWED: Final = Decision(allowed=True)
EVERYTHING: Final = (
    {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
    {"verbs": ["*"], "nonResourceURLs": ["*"]},
)
"""The rules of users that may do everything."""


class NamedAuthorizer(Authorizer, Protocol):
    """One member of a chain."""

    @property
    def name(self) -> str:
        """The prefix of its reasons."""
        ...


_Members: TypeAlias = tuple[NamedAuthorizer, ...]


class Chain:
    """Allows system:masters everything, and other users what a member allows."""

    def __init__(self, members: Sequence[NamedAuthorizer]) -> None:
        self._members = tuple(members)
        self.decisions: Final[Counter[tuple[str, bool]]] = Counter()
        """Number of decisions by member and whether it allowed."""

    def replace(self, members: Sequence[NamedAuthorizer]) -> None:
        """Replace the members; pending decisions continue with the old ones."""
        self._members = tuple(members)

    def authorize(self, attributes: Attributes) -> Decision | Awaitable[Decision]:
        """Return the decision of the first member with an opinion."""
        if PRIVILEGED in attributes.user.groups:
            return ALLOWED
        return self._ask(attributes, self._members, [], [])

    def _ask(
        self, attributes: Attributes, members: _Members, reasons: list[str], errors: list[str]
    ) -> Decision | Awaitable[Decision]:
        """Call some members."""
        for position, member in enumerate(members):
            decision = member.authorize(attributes)
            if not isinstance(decision, Decision):
                rest = members[position:]
                return self._wait(attributes, rest, decision, reasons, errors)
            if decision.allowed or decision.denied:
                self.decisions[member.name, decision.allowed] += 1
                return decision
            if decision is not NO_OPINION:
                _note(member, decision, reasons, errors)
        return _refused(reasons, errors)

    async def _wait(
        self,
        attributes: Attributes,
        members: _Members,
        waiting: Awaitable[Decision],
        reasons: list[str],
        errors: list[str],
    ) -> Decision:
        """Wait for the first of some members, and call the others."""
        decision = await waiting
        if decision.allowed or decision.denied:
            self.decisions[members[0].name, decision.allowed] += 1
            return decision
        _note(members[0], decision, reasons, errors)
        rest = self._ask(attributes, members[1:], reasons, errors)
        return rest if isinstance(rest, Decision) else await rest


class AlwaysAllow:
    """Allows everything."""

    name = "alwaysallow"

    def authorize(self, _attributes: Attributes) -> Decision:
        """Return that it is allowed."""
        return ALLOWED

    def user_rules(self, _user: User, _namespace: str) -> UserRules:
        """Return that everything is allowed."""
        return UserRules(EVERYTHING)


class AlwaysDeny:
    """Allows nothing; members of system:masters are allowed before it is called."""

    name = "alwaysdeny"

    def authorize(self, _attributes: Attributes) -> Decision:
        """Return no opinion and a reason; a later member may still allow it."""
        return Decision(allowed=False, reason="Everything is forbidden.")

    def user_rules(self, _user: User, _namespace: str) -> UserRules:
        """Return that nothing is allowed."""
        return UserRules()


async def decided(authorizer: Authorizer, attributes: Attributes) -> Decision:
    """Return an authorizer's decision, waiting for it if necessary."""
    found = authorizer.authorize(attributes)
    return found if isinstance(found, Decision) else await found


def _note(
    member: NamedAuthorizer, decision: Decision, reasons: list[str], errors: list[str]
) -> None:
    if decision.reason:
        reasons.append(f"{member.name}: {decision.reason}")
    if decision.error:
        errors.append(decision.error)


def _refused(reasons: list[str], errors: list[str]) -> Decision:
    if not reasons and not errors:
        return NO_OPINION
    return Decision(allowed=False, reason="\n".join(reasons), error=", ".join(errors))
