"""What a server cannot give twice: how such values look, and texts taken apart by them.

split('pod "a" has uid 0f6c…-… since 2026-11-22T13:42:29Z')
    → ('pod "a" has uid <uid> since <time>', [("uid", "0f6c…"), ("time", "2026-…")])
"""

import calendar
import re
import time
from collections.abc import Iterator
from typing import NamedTuple

DAY_S = 86_400
SUFFIX = "[bcdfghjklmnpqrstvwxz2456789]{5}"  # what generateName is given
NAME_BASE_MAX = 58  # what is kept of generateName before the suffix

PATTERNS = {
    "uid": r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
    "time": r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?"
    r"(?:Z|\ \+0000\ UTC)?(?:\ m=[+-]\d+\.\d+)?",
    "continue": r"eyJ2IjoibWV0YS[\w=-]+",
    "token": r"eyJhbGciOi[\w-]+\.[\w-]+\.[\w-]+",
    "volume": r"kube-api-access-[a-z0-9]{5}",
    "credential": r"(?<=X509SHA256=)[0-9a-f]{64}",
    "hash": r"(?<![0-9A-F])[0-9A-F]{128}(?![0-9A-F])",
    "ip": r"(?<![\w.])10\.0\.\d{1,3}\.\d{1,3}(?![\w.]*\w)",
}
# Revisions in texts stand behind a word that names them, some in pairs: `record (12) (13)`.
REVISION = (
    r"(?i:\b(?:resource\ ?version|revision|record|current|meta|precondition)[\\\":\ (=]{1,6})"
    r"(?P<rv>\d+)(?![\w-])(?:\ \((?P<rv2>\d+)\))?"
)
PORT = r"(?P<port>(?<![\w.-])3[0-2]\d{3}(?![\w.-]))"
VOLATILE = re.compile("|".join([*(f"(?P<{k}>{p})" for k, p in PATTERNS.items()), REVISION, PORT]))
_FRACTION = re.compile(r"\.\d+")
_DIGITS = re.compile(r"\d+")


class Part(NamedTuple):
    """One volatile value in a text."""

    kind: str  # a key of PATTERNS, or rv, port, name
    value: str


def parts_of(text: str) -> Iterator[Part]:
    """Yield everything in a text that looks volatile."""
    for match in VOLATILE.finditer(text):
        for kind, value in match.groupdict().items():
            if value is not None:
                yield Part(kind.removesuffix("2"), value)


def split(text: str, generated: re.Pattern[str] | None = None) -> tuple[str, list[Part]]:
    """Return a text with its volatile parts replaced by their form, and these parts.

    `generated` finds generated names. The form of a time tells its precision.
    """
    parts: list[Part] = []

    def name(match: re.Match[str]) -> str:
        parts.append(Part("name", match[0]))
        return "<name>"

    def part(match: re.Match[str]) -> str:
        whole = match[0]
        for kind, value in match.groupdict().items():
            if value is None:
                continue
            plain = kind.removesuffix("2")
            parts.append(Part(plain, value))
            form = _DIGITS.sub("#", _FRACTION.sub(".#", value)) if plain == "time" else ""
            whole = whole.replace(value, f"<{plain}{form}>", 1)
        return whole

    if generated is not None:
        text = generated.sub(name, text)
    return VOLATILE.sub(part, text), parts


def second_of(value: str) -> str:
    """Return a time without its fraction, in one notation."""
    return value[:19].replace(" ", "T")


def is_near_now(value: str) -> bool:
    """Tell whether a running clock may have written this time, or an expiry within two years."""
    try:
        stamp = calendar.timegm(time.strptime(second_of(value), "%Y-%m-%dT%H:%M:%S"))
    except ValueError:
        return False
    now = calendar.timegm(time.gmtime())
    return -30 * DAY_S < stamp - now < 800 * DAY_S
