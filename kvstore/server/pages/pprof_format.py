"""Sampled stacks as a profile.proto, which `go tool pprof` and similar tools read.

    {(("main", "x.py", 10), ("leaf", "x.py", 20)): 3}   3 samples of leaf called by main

Only the fields that such a profile needs are written (github.com/google/pprof, profile.proto).
"""

import gzip
from collections.abc import Mapping
from typing import Final

from kvstore.wire.varint import varint

Frame = tuple[str, str, int]  # function, file, line
Stack = tuple[Frame, ...]  # from the outermost frame in

# Field numbers of Profile.
_SAMPLE_TYPE: Final = 1
_SAMPLE: Final = 2
_LOCATION: Final = 4
_FUNCTION: Final = 5
_STRING_TABLE: Final = 6
_TIME_NANOS: Final = 9
_DURATION_NANOS: Final = 10
_PERIOD_TYPE: Final = 11
_PERIOD: Final = 12


def profile(
    samples: Mapping[Stack, int], *, unix_ns: int, duration_ns: int, period_ns: int
) -> bytes:
    """Return a gzipped profile of samples taken every period_ns since unix_ns."""
    strings = {"": 0}

    def text(value: str) -> int:
        return strings.setdefault(value, len(strings))

    def value_type(kind: str, unit: str) -> bytes:
        return _number(1, text(kind)) + _number(2, text(unit))

    functions: dict[tuple[str, str], int] = {}
    locations: dict[Frame, int] = {}
    body = bytearray()
    body += _message(_SAMPLE_TYPE, value_type("samples", "count"))
    body += _message(_SAMPLE_TYPE, value_type("cpu", "nanoseconds"))
    for stack, count in samples.items():
        ids = [locations.setdefault(frame, len(locations) + 1) for frame in reversed(stack)]
        body += _message(_SAMPLE, _packed(1, ids) + _packed(2, [count, count * period_ns]))
    for (name, file, line), location_id in locations.items():
        function_id = functions.setdefault((name, file), len(functions) + 1)
        entry = _number(1, function_id) + _number(2, line)
        body += _message(_LOCATION, _number(1, location_id) + _message(4, entry))
    for (name, file), function_id in functions.items():
        body += _message(
            _FUNCTION,
            _number(1, function_id)
            + _number(2, text(name))
            + _number(3, text(name))
            + _number(4, text(file)),
        )
    body += _number(_TIME_NANOS, unix_ns) + _number(_DURATION_NANOS, duration_ns)
    body += _message(_PERIOD_TYPE, value_type("cpu", "nanoseconds")) + _number(_PERIOD, period_ns)
    for string in strings:
        body += _message(_STRING_TABLE, string.encode(errors="replace"))
    return gzip.compress(bytes(body))


def _number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def _message(field: int, body: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(body)) + body


def _packed(field: int, values: list[int]) -> bytes:
    return _message(field, b"".join([varint(value) for value in values]))
