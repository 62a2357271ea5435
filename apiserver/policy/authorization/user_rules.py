"""The rules of a user that an authorizer can list."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from kvstack.apimachinery.attributes import User


class UserRules(NamedTuple):
    """The rules of one user."""

    rules: Sequence[dict[str, Any]] = ()
    """Rules as in roles."""
    errors: Sequence[str] = ()
    """Why the rules may be incomplete."""
    is_incomplete: bool = False
    """Whether other things than rules decide, too."""


class RuleSource(Protocol):
    """An authorizer that can list rules."""

    def user_rules(self, user: User, namespace: str) -> UserRules:
        """Return the rules of a user in a namespace."""
        ...
