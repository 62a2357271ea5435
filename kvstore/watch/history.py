"""What watches need of the store: events as they come, and events of the past.

The store declares its own types; these are the same shapes, seen from the side that consumes.
"""

from collections.abc import Sequence
from typing import Final, Protocol, TypeAlias

Event: TypeAlias = tuple[int, bytes, bytes, int, int, bytes | None]
"""(type, key, kv, main, sub, prev): kv is the encoded KeyValue as it goes into the message; prev is
the revision key of the value the key had before, None if it had none."""

TYPE: Final = 0
KEY: Final = 1
KV: Final = 2
MAIN: Final = 3
PREV: Final = 5

PUT: Final = 0
DELETE: Final = 1


class History(Protocol):
    """The store, as far as watches look at it."""

    @property
    def revision(self) -> int:
        """The current main revision."""
        ...

    @property
    def compacted(self) -> int:
        """The compacted main revision: events below it are gone."""
        ...

    def history(
        self, from_main: int, to_main: int, limit_rows: int, limit_bytes: int
    ) -> tuple[Sequence[Event], int]:
        """Return (events with from_main <= main < to_main in order, the main to go on from).

        At least one whole main revision, never a part of one; compacted <= from_main.
        """
        ...

    def value_of(self, revkey: bytes) -> bytes | None:
        """Return the encoded KeyValue of a record, or None if it is not there any more."""
        ...
