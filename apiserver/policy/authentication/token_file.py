"""Static tokens of a file.

    token,user,uid,"group1,group2"

The groups may be left out. Of two lines with one token the last counts.
"""

import csv
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from kvstack.apimachinery.attributes import User
from kvstack.apiserver.policy.authentication.results import Found, Identified, shared

_COLUMNS_MIN: Final = 3


class StaticTokens:
    """Authenticates static tokens."""

    def __init__(self, users: Mapping[str, User], api_audiences: Sequence[str]) -> None:
        """users: by token. The tokens are only valid for the API's audiences."""
        self._users: Final = dict(users)
        self._audiences: Final = tuple(api_audiences)

    def authenticate(self, token: str, audiences: Sequence[str]) -> Found:
        """Return the token's user; None: it is none of these."""
        user = self._users.get(token)
        if user is None:
            return None
        accepted = shared(self._audiences, audiences)
        return None if self._audiences and not accepted else Identified(user, accepted)


def read_token_file(lines: Iterable[str], path: str) -> dict[str, User]:
    """Return the users by token; ValueError names the file if a line has too few columns."""
    users: dict[str, User] = {}
    for row in csv.reader(lines, strict=True):
        if not row:
            continue
        if len(row) < _COLUMNS_MIN:
            raise ValueError(
                f"token file '{path}' must have at least 3 columns (token, user name, user uid),"
                f" found {len(row)}"
            )
        token, name, uid, *more = row
        groups = tuple(more[0].split(",")) if more and more[0] else ()
        if token:
            users[token] = User(name, uid, groups)
    return users
