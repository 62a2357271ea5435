"""Codec work on the columns of a batch: the same as in `splice`, for many at once.

    encode_puts     keys, values, numbers ──► revision keys, KeyValues
    put_replies     call ids, revisions   ──► (call id, 0, response) of each
    swap_replies    and how each compare-and-put ended
    get_replies     gets, KeyValues
    tally           tuples ──► how many of each number, and their bytes

Columns are lists of the same length, in step. Nothing is decided here. The functions of PYTHON are
the reference; where the crate was built, KERNELS are its own, which give the same bytes
(tests/property/test_columns.py).
"""

from collections import Counter
from collections.abc import Sequence
from itertools import repeat
from operator import itemgetter
from typing import Final, Protocol, TypeAlias

from kvstack.component import crate
from kvstore.wire import splice
from kvstore.wire.varint import varint

Reply: TypeAlias = tuple[int, int, bytes]  # as in batch.Outbox
Records: TypeAlias = tuple[list[bytes], list[bytes]]  # revision keys, KeyValues

# How a compare-and-put ended.
SWAPPED: Final = 0  # it put
NOT_SWAPPED: Final = 1  # and nothing else was to be done
ABSENT: Final = 2  # it got a key instead, which does not exist
GOT: Final = 3  # it got a key instead

_REVISION_KEY_END: Final = b"_" + bytes(8)
_second: Final = itemgetter(1)
_third: Final = itemgetter(2)


class Kernels(Protocol):
    """The functions of this module."""

    def encode_puts(
        self,
        keys: list[bytes],
        values: list[bytes],
        leases: list[int] | None,
        numbers: tuple[list[int], list[int]],
        first: int,
    ) -> Records:
        """Return the records of puts at consecutive main revisions.

        leases None: all are 0; numbers: create revisions and versions.
        """
        ...

    def put_replies(
        self, call_ids: list[int], header: tuple[bytes, bytes], first: int
    ) -> list[Reply]:
        """Return the replies to puts at consecutive revisions; header: HeaderMaker.parts."""
        ...

    def swap_replies(
        self,
        call_ids: list[int],
        outcomes: bytes,
        revisions: list[int],
        kvs: list[bytes],
        header: tuple[bytes, bytes],
    ) -> list[Reply]:
        """Return the replies to compare-and-puts; kvs are those of GOT, in order."""
        ...

    def get_replies(
        self, gets: list[tuple[int, bytes]], kvs: list[bytes | None], header: bytes
    ) -> list[Reply]:
        """Return the replies to gets, (call id, key); header: a header field."""
        ...

    def tally(self, tuples: list[tuple[int, int, bytes]]) -> tuple[dict[int, int], int]:
        """Return how many tuples have each number at 1, and the bytes at 2 of all."""
        ...


class PythonKernels:
    """Kernels without the crate."""

    def encode_puts(
        self,
        keys: list[bytes],
        values: list[bytes],
        leases: list[int] | None,
        numbers: tuple[list[int], list[int]],
        first: int,
    ) -> Records:
        """See Kernels."""
        mains = range(first, first + len(keys))
        creates, versions = numbers
        of_puts = zip(creates, mains, versions, strict=True)
        of_keys = zip(keys, of_puts, values, leases or repeat(0, len(keys)), strict=True)
        kvs = [splice.encode_kv(key, *each, value, lease) for key, each, value, lease in of_keys]
        return [main.to_bytes(8, "big") + _REVISION_KEY_END for main in mains], kvs

    def put_replies(
        self, call_ids: list[int], header: tuple[bytes, bytes], first: int
    ) -> list[Reply]:
        """See Kernels."""
        numbers = map(varint, range(first, first + len(call_ids)))
        return [
            (call_id, 0, _header(header, number))
            for call_id, number in zip(call_ids, numbers, strict=True)
        ]

    def swap_replies(
        self,
        call_ids: list[int],
        outcomes: bytes,
        revisions: list[int],
        kvs: list[bytes],
        header: tuple[bytes, bytes],
    ) -> list[Reply]:
        """See Kernels."""
        next_kv = iter(kvs).__next__
        replies: list[Reply] = []
        for call_id, outcome, revision in zip(call_ids, outcomes, revisions, strict=True):
            field = _header(header, varint(revision))
            if outcome == SWAPPED:
                response = splice.put_in_txn_response(field, revision)
            elif outcome == NOT_SWAPPED:
                response = field
            else:
                own = splice.revision_field(revision)
                got = own if outcome == ABSENT else splice.get_response(own, next_kv())
                response = splice.txn_response(field, False, (splice.response_op(1, got),))
            replies.append((call_id, 0, response))
        return replies

    def get_replies(
        self, gets: list[tuple[int, bytes]], kvs: Sequence[bytes | None], header: bytes
    ) -> list[Reply]:
        """See Kernels."""
        return [
            (call_id, 0, header if kv is None else splice.get_response(header, kv))
            for (call_id, _), kv in zip(gets, kvs, strict=True)
        ]

    def tally(self, tuples: list[tuple[int, int, bytes]]) -> tuple[dict[int, int], int]:
        """See Kernels."""
        return dict(Counter(map(_second, tuples))), sum(map(len, map(_third, tuples)))


def _header(parts: tuple[bytes, bytes], number: bytes) -> bytes:
    head, tail = parts
    return b"\n%c%b\x18%b%b" % (len(head) + 1 + len(number) + len(tail), head, number, tail)


PYTHON: Final[Kernels] = PythonKernels()
KERNELS: Final[Kernels] = PYTHON if crate.KERNELS is None else crate.KERNELS
encode_puts: Final = KERNELS.encode_puts
put_replies: Final = KERNELS.put_replies
swap_replies: Final = KERNELS.swap_replies
get_replies: Final = KERNELS.get_replies
tally: Final = KERNELS.tally
