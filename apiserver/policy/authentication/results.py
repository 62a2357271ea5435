"""Results of authenticators."""

from collections.abc import Awaitable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from kvstack.apimachinery.attributes import User
from kvstack.apimachinery.objects.text.go_text import aggregate


class AuthenticationError(Exception):
    """Credentials of this authenticator's kind are invalid; the text is upstream's."""


class Identified(NamedTuple):
    """The user of credentials."""

    user: User
    audiences: tuple[str, ...] = ()
    """Requested audiences that the credentials are meant for."""
    warnings: tuple[str, ...] = ()
    annotations: Mapping[str, str] = {}
    """Audit annotations."""


Found: TypeAlias = Identified | None
"""None: the credentials are for other authenticators."""


class TokenAuthenticator(Protocol):
    """Authenticates bearer tokens."""

    def authenticate(self, token: str, audiences: Sequence[str]) -> Found | Awaitable[Found]:
        """Return the token's user, if it is meant for one of the audiences.

        Raises AuthenticationError.
        """
        ...


def shared(left: Iterable[str], right: Iterable[str]) -> tuple[str, ...]:
    """Return what is in both, in the order of the first."""
    other = frozenset(right)
    return tuple(each for each in left if each in other)


def combined(errors: Sequence[AuthenticationError]) -> AuthenticationError:
    """Return several errors as one."""
    return AuthenticationError(aggregate(map(str, errors)))
