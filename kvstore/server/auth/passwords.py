"""Passwords and their bcrypt hashes, compatible with Go's bcrypt.

    hash_password(b"secret", 10) → b"$2a$10$…", 60 bytes      about 60 ms at cost 10, twice as long
                                                              for each higher cost

A password above 72 bytes cannot be hashed; in a comparison only its first 72 bytes count. A pair of
hash and password that matched is cached for a while as a keyed digest, so that a client that logs
in repeatedly costs the hash once. The digests reveal nothing without the key, which is random and
stays in the process.
"""

import hmac
import secrets
import threading
import time
from typing import Final

import bcrypt

PASSWORD_BYTES_MAX: Final = 72
REMEMBERED_MAX: Final = 10_000
REMEMBERED_S: Final = 300.0


def hash_password(password: bytes, cost: int) -> bytes:
    """Return the bcrypt hash of a password; ValueError for one that is too long."""
    return bcrypt.hashpw(password, bcrypt.gensalt(cost, prefix=b"2a"))


class PasswordCheck:
    """Compares passwords with hashes; may be used by several threads."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        self._lock = threading.Lock()
        self._known: dict[bytes, float] = {}  # digest → its expiry, in the order of expiry

    def matches(self, hashed: bytes, password: bytes) -> bool:
        """Return whether a password matches a bcrypt hash; False for an invalid hash."""
        digest = hmac.digest(self._key, len(hashed).to_bytes(4) + hashed + password, "sha256")
        if self._is_known(digest):
            return True
        try:
            is_match = bcrypt.checkpw(password[:PASSWORD_BYTES_MAX], hashed)
        except ValueError:  # not a bcrypt hash
            return False
        if is_match:
            self._remember(digest)
        return is_match

    def _is_known(self, digest: bytes) -> bool:
        with self._lock:
            return self._known.get(digest, 0.0) > time.monotonic()

    def _remember(self, digest: bytes) -> None:
        now_s = time.monotonic()
        with self._lock:
            self._known.pop(digest, None)
            while self._known:
                oldest = next(iter(self._known))
                if self._known[oldest] > now_s and len(self._known) < REMEMBERED_MAX:
                    break
                del self._known[oldest]
            self._known[digest] = now_s + REMEMBERED_S
