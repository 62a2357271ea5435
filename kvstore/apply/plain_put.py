"""Puts of a key and a value without any option, which is what most writes are.

    Router ──► plain_put(request, body) ──► the log ──► Committed ──► Applier.put_run(a run of them)

No option (a lease, the previous value, ignore_value, ignore_lease) has to be looked at, so plain
puts that follow one another in the log are applied as one batch.
"""

from typing import Final, NamedTuple

from kvstore.wire.gen import rpc_pb2 as pb

_KEY_MAX: Final = 127  # bytes; its length is encoded in one byte


class PlainPut(NamedTuple):
    """The contents of such a put."""

    key: bytes
    value: bytes


def plain_put(request: pb.PutRequest, body: bytes) -> PlainPut | None:
    """Return key and value of a parsed request if it has no more: the body's size tells."""
    key, value = request.key, request.value
    key_size, value_size = len(key), len(value)
    rest = len(body) - key_size - value_size
    if 127 < value_size <= 16_383:
        is_all = rest == 5  # two bytes before the key, three before the value
    elif 0 < value_size <= 127:
        is_all = rest == 4
    elif value_size == 0:
        is_all = rest == 2
    else:
        is_all = rest == 6 and value_size <= 2_097_151
    if is_all and 0 < key_size <= _KEY_MAX:
        plain: PlainPut = tuple.__new__(PlainPut, (key, value))  # half the cost of PlainPut(...)
        return plain
    return None
