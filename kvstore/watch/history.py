"""The store as watches use it: new events, and events of the past.

These are the store's own types as a Protocol, so watches do not depend on the store.
"""

from collections.abc import Sequence
from typing import Final, Protocol, TypeAlias

from kvstore.wire.splice import DELETE as DELETE
from kvstore.wire.splice import PUT as PUT

Event: TypeAlias = tuple[int, bytes, bytes, int, int, bytes | None]
"""(type, key, kv, main, sub, prev): kv is the encoded KeyValue as it goes into the message; prev is
the revision key of the value the key had before, None if it had none."""

TYPE: Final = 0
KEY: Final = 1
KV: Final = 2
MAIN: Final = 3
PREV: Final = 5


class History(Protocol):
    """The store, as far as watches use it."""

    @property
    def revision(self) -> int:
        """The current main revision."""
        ...

    @property
    def compacted(self) -> int:
        """The compacted main revision: events below it no longer exist."""
        ...

    def history(
        self, from_main: int, to_main: int, limit_rows: int, limit_bytes: int
    ) -> tuple[Sequence[Event], int]:
        """Return (events with from_main <= main < to_main in order, the next main to read).

        At least one whole main revision, never a part of one; compacted <= from_main.
        """
        ...

    def value_of(self, revkey: bytes) -> bytes | None:
        """Return the encoded KeyValue of a record; None if it no longer exists."""
        ...
