"""Password and token work of a world: what threads and keys do in a server, done as plain sums.

A signed token names its user and auth revision, and ends with a digest that nobody else makes.
"""

from hashlib import blake2b
from typing import Final

from kvstore.auth.tokens import Claims
from kvstore.batch import OffloadedTask, TaskKind
from tests.sim.access.auth_model import Credential, hash_of

PASSWORD_KINDS: Final = frozenset(
    {TaskKind.CHECK_PASSWORD, TaskKind.HASH_PASSWORD, TaskKind.SIGN_TOKEN}
)


def sign(user: str, revision: int) -> str:
    """Return a signed token."""
    text = f"signed:{user}:{revision}"
    digest = blake2b(text.encode(), key=b"simulated", digest_size=8).hexdigest()
    return f"{text}:{digest}"


def claims_of(token: str) -> Credential | None:
    """Return (user, auth revision) of a signed token; None for any other text."""
    parts = token.split(":")
    if len(parts) != 4 or parts[0] != "signed" or sign(parts[1], int(parts[2])) != token:
        return None
    return parts[1], int(parts[2])


class SimTokenKeys:
    """Keys that sign and verify; see kvstore.auth.tokens.TokenKeys."""

    can_sign: Final = True

    def sign(self, username: str, revision: int) -> str:
        """Return a token."""
        return sign(username, revision)

    def verify(self, token: str) -> Claims | None:
        """Return the claims of a token; they do not end."""
        claims = claims_of(token)
        return None if claims is None else Claims(*claims, None, None)


def do_password_work(task: OffloadedTask) -> tuple[str, bytes]:
    """Do a task of PASSWORD_KINDS; return (error, result)."""
    first, second = task.args
    match task.kind:
        case TaskKind.CHECK_PASSWORD:
            return ("" if hash_of(second) == first else "the password is wrong"), b""
        case TaskKind.HASH_PASSWORD:
            return "", hash_of(first)
        case TaskKind.SIGN_TOKEN:
            return "", sign(first.decode(), int(second)).encode()
        case _:
            raise ValueError(f"{task.kind.name} is no password work")
