"""What an authenticator finds out, and how it says that credentials are no good."""

from collections.abc import Awaitable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from kvstack.apimachinery.attributes import User
from kvstack.apimachinery.objects.text.go_text import aggregate


class AuthenticationError(Exception):
    """Credentials are for this authenticator, and are no good; the text is upstream's."""


class Identified(NamedTuple):
    """Whose credentials these are."""

    user: User
    audiences: tuple[str, ...] = ()
    """Those asked for that the credentials are meant for."""
    warnings: tuple[str, ...] = ()
    annotations: Mapping[str, str] = {}
    """For the audit log."""


Found: TypeAlias = Identified | None
"""None: the credentials are another's to judge."""


class TokenAuthenticator(Protocol):
    """Tells whose a bearer token is."""

    def authenticate(self, token: str, audiences: Sequence[str]) -> Found | Awaitable[Found]:
        """Return whose the token is, if it is meant for one of the audiences.

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
