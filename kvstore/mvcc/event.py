"""One change of one key, as watchers and the replies to writers need it."""

from typing import Final, NamedTuple

from kvstore.wire.splice import int64

PUT: Final = 0
DELETE: Final = 1


class Event(NamedTuple):
    """A put or a deletion.

    kv is the encoded KeyValue; of a deletion it holds the key and the mod revision only. prev is
    the revision key (17 bytes) of the value the key had before, None if it had none.
    """

    type: int
    key: bytes
    kv: bytes
    main: int
    sub: int
    prev: bytes | None


def deletion_kv(tombstone: bytes, main: int) -> bytes:
    """Return the KeyValue of a deletion event, from the one in its record."""
    return tombstone + b"\x18" + int64(main)
