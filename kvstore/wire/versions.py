"""Versions of servers (3.7.1) and of clusters (3.7, without the patch).

    parse_version("3.7.1-rc.0+git") → 3.7.1        parse_cluster_version("3.6") → 3.6.0

A cluster version may go up by any number of minors, and down by one.
"""

import json
import re
from typing import Final, NamedTuple

from kvstore.types import override
from kvstore.wire.varint import WireError

_NUMBER: Final = re.compile(r"[+-]?[0-9]+")
_NUMBER_MAX: Final = (1 << 63) - 1


class Version(NamedTuple):
    """A version; pre-release and build are dropped, nothing here depends on them."""

    major: int
    minor: int
    patch: int = 0

    @override
    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"

    @property
    def without_patch(self) -> "Version":
        """The version without its patch, as of a cluster."""
        return Version(self.major, self.minor)

    def next_minor(self) -> "Version":
        """Return the first version of the next minor."""
        return Version(self.major, self.minor + 1)

    def previous_minor(self) -> "Version":
        """Return the first version of the previous minor: the target of a downgrade."""
        return Version(self.major, self.minor - 1)


def parse_version(text: str) -> Version:
    """Parse major.minor.patch with optional -pre-release and +build; ValueError otherwise."""
    numbers = text.partition("+")[0].partition("-")[0].split(".")
    if len(numbers) != 3 or not all(_NUMBER.fullmatch(number) for number in numbers):
        raise ValueError(f"invalid version {text!r:.80}: expected a form such as 3.7.1")
    major, minor, patch = (int(number[:32]) for number in numbers)
    if max(map(abs, (major, minor, patch))) > _NUMBER_MAX:
        raise ValueError(f"invalid version {text!r:.80}: numbers go up to {_NUMBER_MAX}")
    return Version(major, minor, patch)


def parse_cluster_version(text: str) -> Version:
    """Parse major.minor or a whole version, and drop the patch; ValueError otherwise."""
    try:
        return parse_version(text).without_patch
    except ValueError:
        return parse_version(f"{text}.0").without_patch


def is_change(before: Version, after: Version) -> bool:
    """Return whether a cluster version may change so: up, or down by one minor."""
    before, after = before.without_patch, after.without_patch
    return after == before.previous_minor() or (before.major == after.major and before < after)


def decode_server_version(body: bytes) -> str:
    """Return the server version from the body of /version on a peer port; WireError if invalid.

    {"etcdserver":"3.7.1","etcdcluster":"3.7.0","storage":"3.7.0"}
    """
    try:
        row = json.loads(body)
    except (ValueError, RecursionError):
        raise WireError(f"version of {len(body)} bytes is not JSON") from None
    server = row.get("etcdserver") if isinstance(row, dict) else None
    if not isinstance(server, str):
        raise WireError(f"version of {len(body)} bytes names no etcdserver")
    return server
