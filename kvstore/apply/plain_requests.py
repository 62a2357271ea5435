"""Puts and gets without any option, which is what most calls are.

    plain_put    a key and a value
    plain_get    a key as it is now, perhaps read serializably

No option (a lease, the previous value, a range's end, a revision, ...) has to be looked at, so
plain puts that follow one another in the log are applied as one batch, and the plain gets of a turn
are answered as one. A request is plain if it begins with its key and its size leaves no room for
another field. The crate recognizes the same (kvstore/native/src/kernels/requests.rs).
"""

from typing import Final, TypeAlias

from google.protobuf.message import DecodeError

from kvstore.wire.gen import rpc_pb2 as pb

PlainPut: TypeAlias = tuple[bytes, bytes]  # key, value
PlainGet: TypeAlias = tuple[bytes, bool]  # key, whether it is serializable

_KEY_MAX: Final = 127  # bytes; its length is encoded in one byte
_KEY_TAG: Final = 10
_parse_put: Final = pb.PutRequest.FromString
_parse_range: Final = pb.RangeRequest.FromString


def plain_put(body: bytes) -> PlainPut | None:
    """Return key and value of a request that has nothing else."""
    try:
        request = _parse_put(body)
    except DecodeError:
        return None
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
    if is_all and 0 < key_size <= _KEY_MAX and body[0] == _KEY_TAG:
        return key, value
    return None


def plain_get(body: bytes) -> PlainGet | None:
    """Return the key of a range request that has nothing else, or only serializable."""
    try:
        request = _parse_range(body)
    except DecodeError:
        return None
    key = request.key
    rest = len(body) - len(key)
    is_all = rest == (4 if request.serializable else 2)  # two bytes before the key
    if is_all and 0 < len(key) <= _KEY_MAX and body[0] == _KEY_TAG:
        return key, request.serializable
    return None
