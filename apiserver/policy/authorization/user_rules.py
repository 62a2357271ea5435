"""What an authorizer can list of what a user may do."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from kvstack.apimachinery.attributes import User


class UserRules(NamedTuple):
    """The rules of one user."""

    rules: Sequence[dict[str, Any]] = ()
    """As roles have them."""
    errors: Sequence[str] = ()
    """Why these may not be all."""
    is_incomplete: bool = False
    """Whether something else than rules decides, too."""


class RuleSource(Protocol):
    """An authorizer that can list rules."""

    def user_rules(self, user: User, namespace: str) -> UserRules:
        """Return what a user may do in a namespace."""
        ...
