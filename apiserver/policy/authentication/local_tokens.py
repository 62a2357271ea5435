"""Tokens of users within the process, valid for its lifetime.

    token = tokens.issue(User("system:kube-scheduler"))

They never leave the process.
"""

from collections.abc import Callable, Sequence
from typing import Final

from kvstack.apimachinery.attributes import User
from kvstack.apiserver.policy.authentication.results import Found, Identified, shared


class LocalTokens:
    """Authenticates tokens that were issued here."""

    def __init__(self, api_audiences: Sequence[str], new_secret: Callable[[], str]) -> None:
        """new_secret: returns an unguessable text."""
        self._users: Final[dict[str, User]] = {}
        self._audiences: Final = tuple(api_audiences)
        self._new_secret: Final = new_secret

    def issue(self, user: User) -> str:
        """Return a token of a user."""
        token = self._new_secret()
        self._users[token] = user
        return token

    def authenticate(self, token: str, audiences: Sequence[str]) -> Found:
        """Return the token's user; None: it was not issued here."""
        user = self._users.get(token)
        if user is None:
            return None
        accepted = shared(self._audiences, audiences)
        return None if self._audiences and not accepted else Identified(user, accepted)
