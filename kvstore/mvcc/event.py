"""One change of one key, as watchers and the responses to writers need it."""

from typing import NamedTuple

from kvstore.wire.splice import DELETE as DELETE
from kvstore.wire.splice import PUT as PUT
from kvstore.wire.splice import int64


class Event(NamedTuple):
    """A put or a deletion.

    kv is the encoded KeyValue; of a deletion it has only the key and the mod revision. prev is the
    revision key (17 bytes) of the value the key had before, None if it had none.
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
