"""Parsers of values, one for each kind of flag, with Go's syntax of numbers and durations.

    parse_duration("1m30s") == 90_000_000_000      parse_bool("T") is True

A text that cannot be parsed raises ValueError with the reason; the caller adds the flag's name.
"""

import re
from collections.abc import Callable
from typing import Final, TypeAlias

from kvstore.config.flags import ALPHA_GATES, BETA_GATES, FEATURE_GATES, Flag, FlagKind

Value: TypeAlias = bool | int | str | tuple[str, ...] | dict[str, bool]

_TRUE: Final = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE: Final = frozenset({"0", "f", "F", "FALSE", "false", "False"})
_OCTAL: Final = re.compile(r"[+-]?0[0-7]+")
_PART: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h)")
_UNIT_NS: Final = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,  # the micro sign
    "μs": 1_000,  # the Greek letter
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
INT64_MAX: Final = 2**63 - 1
_NOT_A_DURATION: Final = "not a duration such as 100ms, 5s or 1m30s"


def parse_value(flag: Flag, text: str) -> Value:
    """Parse text as the value of flag; ValueError if it is invalid."""
    if flag.kind is FlagKind.CHOICE:
        return _choice(flag, text)
    if flag.name == "cors" and text == "*":
        return ("*",)
    value = _PARSERS[flag.kind](text)
    if flag.choices and isinstance(value, tuple):
        for item in value:
            _choice(flag, item)
    return value


def default_value(flag: Flag) -> Value:
    """Return the value of a flag that is not set."""
    if flag.default == "" and flag.kind in {FlagKind.SET, FlagKind.LIST, FlagKind.URLS}:
        return ()
    return parse_value(flag, flag.default)


def parse_bool(text: str) -> bool:
    """Parse a boolean in any of Go's spellings."""
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise ValueError("not a boolean such as true or false")


def parse_int(text: str) -> int:
    """Parse a signed 64-bit number, decimal or with one of the prefixes 0x, 0o, 0b, 0."""
    number = _number(text)
    if not -INT64_MAX - 1 <= number <= INT64_MAX:
        raise ValueError(f"out of range, limits {-INT64_MAX - 1} and {INT64_MAX}")
    return number


def parse_uint(text: str) -> int:
    """Parse an unsigned 64-bit number."""
    return _unsigned(text, 2**64 - 1)


def parse_duration(text: str) -> int:
    """Parse a duration; return nanoseconds."""
    rest = text.lstrip("+-") if text[:1] in {"+", "-"} and text[1:2] not in {"+", "-"} else text
    if rest == "0":
        return 0
    total_ns, position = 0, 0
    while position < len(rest):
        part = _PART.match(rest, position)
        if part is None:
            raise ValueError(_NOT_A_DURATION)
        whole, _, fraction = part[1].partition(".")
        unit_ns = _UNIT_NS[part[2]]
        total_ns += int(whole or "0") * unit_ns
        total_ns += int(fraction or "0") * unit_ns // 10 ** len(fraction)
        position = part.end()
    if not rest:
        raise ValueError(_NOT_A_DURATION)
    if total_ns > INT64_MAX:
        raise ValueError("out of range, limit about 292 years")
    return -total_ns if text.startswith("-") else total_ns


def parse_urls(text: str) -> tuple[str, ...]:
    """Parse a list of URLs; return them sorted and without duplicates. Empty text: no URLs."""
    if text == "":
        return ()
    return tuple(sorted({check_url(url.strip()) for url in text.split(",")}))


def check_url(url: str) -> str:
    """Return url if its scheme is http, https, unix or unixs and only host:port follows."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        scheme, _, rest = url.partition(":")
        if scheme not in {"unix", "unixs"}:
            raise ValueError(f"URL scheme must be http, https, unix, or unixs: {url}")
    if scheme in {"unix", "unixs"}:
        return url
    if scheme not in {"http", "https"}:
        raise ValueError(f"URL scheme must be http, https, unix, or unixs: {url}")
    authority, slash, _ = rest.partition("/")
    split_host_port(authority, url)
    if slash:
        raise ValueError(f"URL must not contain a path: {url}")
    return url


def split_host_port(authority: str, url: str) -> tuple[str, int]:
    """Split host:port or [v6]:port; ValueError names url if it has another form."""
    host, colon, port = authority.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if not colon or (":" in host and not bracketed):
        raise ValueError(f'URL address does not have the form "host:port": {url}')
    if not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"the port must be a number from 0 to 65535: {url}")
    return (host[1:-1] if bracketed else host), int(port)


def parse_feature_gates(text: str) -> dict[str, bool]:
    """Parse Name=true,Name=false; AllAlpha and AllBeta set the gates that are not named."""
    named: dict[str, bool] = {}
    groups: dict[str, bool] = {}
    for item in filter(None, text.split(",")):
        name, equals, setting = (part.strip() for part in item.partition("="))
        if not equals:
            raise ValueError(f"missing bool value for {name}")
        try:
            enabled = parse_bool(setting)
        except ValueError as error:
            raise ValueError(f"invalid value of {name}={setting}: {error}") from None
        if name in FEATURE_GATES:
            named[name] = enabled
        elif name in _GATE_GROUPS:
            groups[name] = enabled
        else:
            raise ValueError(f"unrecognized feature gate: {name}")
    switched = {gate: on for group, on in groups.items() for gate in _GATE_GROUPS[group]}
    return FEATURE_GATES | switched | named


_GATE_GROUPS: Final = {"AllAlpha": ALPHA_GATES, "AllBeta": BETA_GATES}


def _number(text: str) -> int:
    try:
        return int("!" if text != text.strip() else text, 8 if _OCTAL.fullmatch(text) else 0)
    except ValueError:
        raise ValueError("not a number") from None


def _unsigned(text: str, limit: int) -> int:
    if text[:1] in {"+", "-"}:
        raise ValueError(f"not a number from 0 to {limit}")
    number = _number(text)
    if number > limit:
        raise ValueError(f"out of range, limit {limit}")
    return number


def _uint32(text: str) -> int:
    return _unsigned(text, 2**32 - 1)


def _set(text: str) -> tuple[str, ...]:
    return tuple(sorted(set(text.split(","))))


def _list(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))


def _choice(flag: Flag, text: str) -> str:
    if text not in flag.choices:
        raise ValueError(f"must be one of {', '.join(flag.choices)}")
    return text


_PARSERS: Final[dict[FlagKind, Callable[[str], Value]]] = {
    FlagKind.BOOL: parse_bool,
    FlagKind.INT: parse_int,
    FlagKind.UINT: parse_uint,
    FlagKind.UINT32: _uint32,
    FlagKind.STRING: str,
    FlagKind.SET: _set,
    FlagKind.LIST: _list,
    FlagKind.URLS: parse_urls,
    FlagKind.DURATION: parse_duration,
    FlagKind.GATES: parse_feature_gates,
}
