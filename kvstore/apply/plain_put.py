"""Puts of a key and a value and nothing more, which is what most writes are.

    Router ──► plain_put(request, body) ──► the log ──► Committed ──► Applier.put_run(a run of them)

Whatever more a put can ask (a lease, the previous value, to keep the value or the lease) has no
meaning to be looked at here, so those that follow one another in the log are applied as one batch.
"""

from typing import Final, NamedTuple

from kvstore.wire.gen import rpc_pb2 as pb

_KEY_MAX: Final = 127  # bytes whose number takes one


class PlainPut(NamedTuple):
    """What such a put says."""

    key: bytes
    value: bytes


def plain_put(request: pb.PutRequest, body: bytes) -> PlainPut | None:
    """Return what a parsed request says if that is all: the sizes tell that there is no more."""
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
        plain: PlainPut = tuple.__new__(PlainPut, (key, value))  # half the price of PlainPut(...)
        return plain
    return None
