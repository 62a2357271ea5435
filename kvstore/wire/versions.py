"""Versions of servers and clusters: 3.7.1, and what of it members must agree on, 3.7.

    parse_version("3.7.1-rc.0+git") → 3.7.1        parse_cluster_version("3.6") → 3.6.0

A cluster moves up any number of minors, and down one.
"""

import json
import re
from typing import Final, NamedTuple

from kvstore.types import override
from kvstore.wire.varint import WireError

_NUMBER: Final = re.compile(r"[+-]?[0-9]+")
_NUMBER_MAX: Final = (1 << 63) - 1


class Version(NamedTuple):
    """A version; pre-release and build are not kept, nothing here depends on them."""

    major: int
    minor: int
    patch: int = 0

    @override
    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"

    @property
    def without_patch(self) -> "Version":
        """What members of a cluster have in common."""
        return Version(self.major, self.minor)

    def next_minor(self) -> "Version":
        """Return the first of the minor after this one."""
        return Version(self.major, self.minor + 1)

    def previous_minor(self) -> "Version":
        """Return the first of the minor before this one: where a downgrade may lead."""
        return Version(self.major, self.minor - 1)


def parse_version(text: str) -> Version:
    """Read major.minor.patch, with -pre-release and +build or without; ValueError if it is not."""
    numbers = text.partition("+")[0].partition("-")[0].split(".")
    if len(numbers) != 3 or not all(_NUMBER.fullmatch(number) for number in numbers):
        raise ValueError(f"{text!r:.80} is no version such as 3.7.1")
    major, minor, patch = (int(number[:32]) for number in numbers)
    if max(map(abs, (major, minor, patch))) > _NUMBER_MAX:
        raise ValueError(f"{text!r:.80} is no version: numbers go up to {_NUMBER_MAX}")
    return Version(major, minor, patch)


def parse_cluster_version(text: str) -> Version:
    """Read major.minor or a whole version, without its patch; ValueError if it is neither."""
    try:
        return parse_version(text).without_patch
    except ValueError:
        return parse_version(f"{text}.0").without_patch


def is_change(before: Version, after: Version) -> bool:
    """Tell whether a cluster may move from one version to the other: up, or down by one minor."""
    before, after = before.without_patch, after.without_patch
    return after == before.previous_minor() or (before.major == after.major and before < after)


def decode_server_version(body: bytes) -> str:
    """Return the server's version of what /version on a peer port says; WireError if it is none.

    {"etcdserver":"3.7.1","etcdcluster":"3.7.0","storage":"3.7.0"}
    """
    try:
        row = json.loads(body)
    except (ValueError, RecursionError):
        raise WireError(f"version of {len(body)} bytes is no JSON") from None
    server = row.get("etcdserver") if isinstance(row, dict) else None
    if not isinstance(server, str):
        raise WireError(f"version of {len(body)} bytes names no etcdserver")
    return server
