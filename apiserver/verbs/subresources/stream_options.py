"""Query parameters of streams, as option objects.

    read("PodLogOptions", {"tailLines": ["5"], "follow": [""]})   → {"follow": True, "tailLines": 5}

Except for lists, only the first value of a parameter counts; unknown ones are ignored. A boolean
parameter without a value is true.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from kvstack.apimachinery.objects import status
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.text.go_numbers import NumberError, parse_int, parse_uint
from kvstack.apimachinery.objects.times import TimeError, canonical_time

Read = Callable[[Sequence[str]], Any]

_ZERO_TIME: Final = "0001-01-01T00:00:00Z"
_PORT_BITS: Final = 16


def _flag(values: Sequence[str]) -> bool:
    return values[0] != "0" and values[0].lower() != "false"


def _number(values: Sequence[str]) -> int:
    return parse_int(values[0], 64)


def _text(values: Sequence[str]) -> str:
    return values[0]


def _time(values: Sequence[str]) -> str:
    if values[0] in ("", "null"):
        return _ZERO_TIME
    return canonical_time(values[0]) or _ZERO_TIME


def _ports(values: Sequence[str]) -> list[int]:
    try:
        return [parse_uint(port, _PORT_BITS) for each in values for port in each.split(",")]
    except NumberError as error:
        raise NumberError(f"cannot convert to []int32: {error}") from None


_TERMINAL: Final[Mapping[str, Read]] = {
    "stdin": _flag,
    "stdout": _flag,
    "stderr": _flag,
    "tty": _flag,
    "container": _text,
}
_READERS: Final[Mapping[str, Mapping[str, Read]]] = {
    "PodAttachOptions": _TERMINAL,
    "PodExecOptions": {**_TERMINAL, "command": list},
    "PodLogOptions": {
        "container": _text,
        "follow": _flag,
        "previous": _flag,
        "sinceSeconds": _number,
        "sinceTime": _time,
        "timestamps": _flag,
        "tailLines": _number,
        "limitBytes": _number,
        "insecureSkipTLSVerifyBackend": _flag,
        "stream": _text,
    },
    "PodPortForwardOptions": {"ports": _ports},
    "NodeProxyOptions": {"path": _text},
    "PodProxyOptions": {"path": _text},
    "ServiceProxyOptions": {"path": _text},
}


def read(kind: str, query: Mapping[str, Sequence[str]]) -> Object:
    """Return the options of a kind from a query; raises ApiError."""
    try:
        return {
            name: reader(query[name]) for name, reader in _READERS[kind].items() if query.get(name)
        }
    except (NumberError, TimeError) as error:
        raise status.bad_request(str(error)) from None
