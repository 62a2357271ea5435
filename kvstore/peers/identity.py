"""The headers by which members identify themselves, and the check of them.

Every request has the headers of `Identity.headers`. Every handler under /raft first calls
`refusal`, which checks in etcd's order: version, then cluster.

A version that cannot be parsed makes etcd's handler panic, which ends the connection; here it is
refused as incompatible.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from kvstore.types import MIN_CLUSTER_VERSION, SERVER_VERSION, ClusterId, MemberId

INCOMPATIBLE_VERSION: Final = "incompatible version"
CLUSTER_ID_MISMATCH: Final = "cluster ID mismatch"

_OLDEST: Final = "2.0.0"  # of a member that sends no version
_VERSION: Final = re.compile(r"(\d{1,9})\.(\d{1,9})\.(\d{1,9})(?:[-+][0-9A-Za-z.+-]*)?")
_STREAMS_SINCE: Final = (2, 1)  # the oldest release with both streams


class Identity(NamedTuple):
    """This member."""

    member_id: MemberId
    cluster_id: ClusterId
    peer_urls: tuple[str, ...]  # as advertised

    def headers(self) -> list[tuple[str, str]]:
        """Return the headers of every request to a member."""
        return [
            ("X-Server-From", f"{self.member_id:x}"),
            ("X-Server-Version", SERVER_VERSION),
            ("X-Min-Cluster-Version", MIN_CLUSTER_VERSION),
            ("X-Etcd-Cluster-ID", f"{self.cluster_id:x}"),
            ("X-PeerURLs", ",".join(self.peer_urls)),
        ]


def minor_version(text: str | None) -> tuple[int, int] | None:
    """Return (major, minor) of a header's version, None if it cannot be parsed."""
    found = _VERSION.fullmatch(text or _OLDEST)
    return (int(found[1]), int(found[2])) if found else None


def refusal(headers: Mapping[str, str], cluster_id: ClusterId) -> str:
    """Return why a request is refused with status 412; empty: it is not.

    headers: names in lower case.
    """
    server = minor_version(headers.get("x-server-version"))
    needs = minor_version(headers.get("x-min-cluster-version"))
    if server is None or needs is None:
        return INCOMPATIBLE_VERSION
    if server < _own(MIN_CLUSTER_VERSION) or needs > _own(SERVER_VERSION):
        return INCOMPATIBLE_VERSION
    if headers.get("x-etcd-cluster-id", "") != f"{cluster_id:x}":
        return CLUSTER_ID_MISMATCH
    return ""


def can_stream(server_version: str | None) -> bool:
    """Return whether a member of this version serves both streams."""
    found = minor_version(server_version)
    return found is not None and found >= _STREAMS_SINCE


def sender(headers: Mapping[str, str]) -> tuple[MemberId, Sequence[str]]:
    """Return (member id, peer URLs) of a request's sender; id 0 if it sent none."""
    urls = [url for url in headers.get("x-peerurls", "").split(",") if url]
    return parse_id(headers.get("x-server-from", "")) or 0, urls


def parse_id(text: str) -> MemberId | None:
    """Return the id of a hexadecimal text; None if it is not an id."""
    if not 1 <= len(text) <= 64 or not text.isascii() or not text.isalnum():
        return None
    try:
        number = int(text, 16)
    except ValueError:
        return None
    return number if number < 1 << 64 else None


def _own(version: str) -> tuple[int, int]:
    found = minor_version(version)
    assert found is not None, version
    return found
