"""Bytes of answers that clients have not read yet: the count and the limit of each user.

    unsent.check(user)                      TooManyError: the user holds its share already
    held = unsent.hold(user, 4711, shared)  of one answer; shared: bytes that others are sent, too
    unsent.release(held)                    they are sent, or the client has disconnected
    unsent.set_live("alice", 4711)          what the user's running watches are behind, now and then

Bytes are in memory until the socket has taken them. Each answer keeps its seat of priority and
fairness for as long, which bounds the number of answers; this bounds the bytes of one user over all
of its connections. Bytes that several answers share (a cached list) count once, for each user and
in total. Administrators are not counted, as they are not queued.
"""

from typing import Final

from kvstack.apimachinery.attributes import PRIVILEGED, User
from kvstack.apiserver.http.limits.too_many import TooManyError

UNSENT_BYTES_ALL: Final = 512 << 20
"""Limit of all answers."""
USER_SHARE: Final = 8
"""The part of it that one user may hold."""
CROWDED_SHARE: Final = 128
"""The part that one user may hold once the limit is reached."""


class UnsentAnswer:
    """The unsent bytes of one answer."""

    __slots__ = ("shared", "size", "user")

    def __init__(self, user: str, size: int, shared: bytes) -> None:
        self.user: Final = user
        self.size: Final = size
        self.shared: Final = shared


class _Holding:
    """The unsent bytes of one user."""

    __slots__ = ("answers", "bytes", "live", "shared")

    def __init__(self) -> None:
        self.answers = 0
        self.bytes = 0
        self.live = 0
        """Bytes of running watches."""
        self.shared: Final[dict[int, int]] = {}
        """Number of answers by identity of the shared bytes."""


class Unsent:
    """The unsent bytes of all users."""

    def __init__(self, bytes_max: int = UNSENT_BYTES_ALL) -> None:
        """bytes_max: limit of all users."""
        self.bytes_max: Final = bytes_max
        self.user_bytes_max: Final = bytes_max // USER_SHARE
        self._crowded_bytes_max: Final = bytes_max // CROWDED_SHARE
        self.bytes = 0
        """Bytes of all users."""
        self._by_user: dict[str, _Holding] = {}
        self._shared: dict[int, int] = {}

    def of(self, user: str) -> int:
        """Return how many bytes a user holds."""
        found = self._by_user.get(user)
        return 0 if found is None else found.bytes + found.live

    def check(self, user: User) -> None:
        """Raise TooManyError if a user has reached its limit."""
        if not self._by_user:
            return
        held = self.of(user.name)
        if held < self._crowded_bytes_max or PRIVILEGED in user.groups:
            return
        if held >= self.user_bytes_max or self.bytes >= self.bytes_max:
            raise TooManyError

    def hold(self, user: User, size: int, shared: bytes = b"") -> UnsentAnswer | None:
        """Count the bytes of an answer: its own, and those that it shares."""
        if PRIVILEGED in user.groups:
            return None
        name = user.name
        holding = self._by_user.get(name)
        if holding is None:
            holding = self._by_user[name] = _Holding()
        holding.answers += 1
        holding.bytes += size
        self.bytes += size
        if shared:
            holding.bytes += _added(holding.shared, shared)
            self.bytes += _added(self._shared, shared)
        return UnsentAnswer(name, size, shared)

    def release(self, held: UnsentAnswer) -> None:
        """Stop counting an answer; to be called once."""
        holding = self._by_user[held.user]
        holding.answers -= 1
        holding.bytes -= held.size
        self.bytes -= held.size
        if held.shared:
            holding.bytes -= _removed(holding.shared, held.shared)
            self.bytes -= _removed(self._shared, held.shared)
        self._forget_empty(held.user, holding)

    def set_live(self, user: str, size: int) -> None:
        """Set how many bytes a user's running watches have unsent."""
        holding = self._by_user.get(user)
        if holding is None:
            if not size:
                return
            holding = self._by_user[user] = _Holding()
        self.bytes += size - holding.live
        holding.live = size
        self._forget_empty(user, holding)

    def _forget_empty(self, user: str, holding: _Holding) -> None:
        if not holding.answers and not holding.live:
            del self._by_user[user]


def _added(counts: dict[int, int], shared: bytes) -> int:
    """Count one more answer with these bytes; return how many bytes that adds."""
    count = counts.get(id(shared), 0)  # the answer references them, which keeps the identity valid
    counts[id(shared)] = count + 1
    return 0 if count else len(shared)


def _removed(counts: dict[int, int], shared: bytes) -> int:
    count = counts[id(shared)] - 1
    if count:
        counts[id(shared)] = count
        return 0
    del counts[id(shared)]
    return len(shared)
