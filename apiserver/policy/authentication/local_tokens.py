"""Tokens of users within the process, good for as long as it runs.

    token = tokens.issue(User("system:kube-scheduler"))

Nobody outside of the process is told one.
"""

from collections.abc import Callable, Sequence
from typing import Final

from kvstack.apimachinery.attributes import User
from kvstack.apiserver.policy.authentication.results import Found, Identified, shared


class LocalTokens:
    """Authenticates tokens that were issued here."""

    def __init__(self, api_audiences: Sequence[str], new_secret: Callable[[], str]) -> None:
        """Know none yet; new_secret: returns what nobody can guess."""
        self._users: Final[dict[str, User]] = {}
        self._audiences: Final = tuple(api_audiences)
        self._new_secret: Final = new_secret

    def issue(self, user: User) -> str:
        """Return a token of a user."""
        token = self._new_secret()
        self._users[token] = user
        return token

    def authenticate(self, token: str, audiences: Sequence[str]) -> Found:
        """Return whose the token is; None: it was not issued here."""
        user = self._users.get(token)
        if user is None:
            return None
        accepted = shared(self._audiences, audiences)
        return None if self._audiences and not accepted else Identified(user, accepted)
