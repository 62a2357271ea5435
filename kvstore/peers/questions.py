"""The requests a member makes before it has a node: the others' member list and versions.

    fetch_members            GET /members             the first URL that answers
    fetch_version            GET /version             the URLs are those of one member
    fetch_downgrade_enabled  GET /downgrade/enabled   likewise

Blocking functions for the start and for threads. Each URL has timeout_s; if all fail, one
PeerRequestError names the reason for each.
"""

import json
from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeVar

from kvstore.peers.http_client import Answer, PeerRequestError, dial
from kvstore.peers.identity import parse_id
from kvstore.peers.tls import PeerTls
from kvstore.types import ClusterId
from kvstore.wire.members import Member, decode_member, go_json
from kvstore.wire.varint import WireError

_T = TypeVar("_T")


class RemoteCluster(NamedTuple):
    """A running cluster, as one of its members describes it."""

    cluster_id: ClusterId
    members: list[Member]  # ordered by id


class Versions(NamedTuple):
    """The versions of a member."""

    server: str  # "3.7.1"
    cluster: str  # "3.7.0", or "not_decided"
    storage: str  # "3.7.0", or "unknown", or "" from releases before 3.6


def fetch_members(urls: Iterable[str], tls: PeerTls, timeout_s: float) -> RemoteCluster:
    """Return the cluster as described by the first of urls that answers.

    PeerRequestError if none does, or if the first that answers has no members.
    """
    cluster = _first(
        urls,
        "/members",
        tls,
        timeout_s,
        _cluster,
        "could not retrieve cluster information from the given URLs",
    )
    if not cluster.members:
        raise PeerRequestError("failed to get raft cluster member(s) from the given URLs")
    return cluster


def fetch_version(urls: Iterable[str], tls: PeerTls, timeout_s: float) -> Versions:
    """Return the versions of the member with these peer URLs."""
    return _first(urls, "/version", tls, timeout_s, _versions, "could not retrieve the version")


def fetch_downgrade_enabled(urls: Iterable[str], tls: PeerTls, timeout_s: float) -> bool:
    """Return whether a downgrade is in progress, according to the member with these URLs."""
    return _first(
        urls, "/downgrade/enabled", tls, timeout_s, _flag, "could not retrieve the downgrade status"
    )


def ask_once(
    url: str,
    method: str,
    target: str,
    tls: PeerTls,
    timeout_s: float,
    *,
    headers: Iterable[tuple[str, str]] = (),
    body: bytes = b"",
) -> Answer:
    """Send one request over a new connection; PeerRequestError if no response came in time."""
    connection = dial(url, tls, timeout_s)
    try:
        return connection.ask(
            method, target, [*headers, ("Connection", "close")], body, timeout_s=timeout_s
        )
    finally:
        connection.close()


def _first(
    urls: Iterable[str],
    target: str,
    tls: PeerTls,
    timeout_s: float,
    read: Callable[[Answer], _T],
    failed: str,
) -> _T:
    reasons: list[str] = []
    for url in urls:
        try:
            return read(ask_once(url, "GET", target, tls, timeout_s))
        except (PeerRequestError, WireError) as error:
            reasons.append(f"{url}{target}: {error}")
    raise PeerRequestError(f"{failed} ({'; '.join(reasons) or 'there are none'})")


def _cluster(answer: Answer) -> RemoteCluster:
    rows = _json(answer)
    if not isinstance(rows, list):
        raise PeerRequestError(f"its members are not a list: {answer.text}")
    cluster_id = parse_id(answer.headers.get("x-etcd-cluster-id", ""))
    if cluster_id is None:
        raise PeerRequestError("the answer has no cluster id")
    return RemoteCluster(cluster_id, [decode_member(go_json(row)) for row in rows])


def _versions(answer: Answer) -> Versions:
    row = _json(answer)
    if not isinstance(row, dict):
        raise PeerRequestError(f"its versions are not an object: {answer.text}")
    server, cluster, storage = (
        str(row.get(name, "")) for name in ("etcdserver", "etcdcluster", "storage")
    )
    return Versions(server, cluster, storage)


def _flag(answer: Answer) -> bool:
    if answer.status != 200 or answer.body.strip() not in {b"true", b"false"}:
        raise PeerRequestError(f"HTTP status {answer.status}: {answer.text}")
    return answer.body.strip() == b"true"


def _json(answer: Answer) -> object:
    try:
        return json.loads(answer.body)
    except (ValueError, RecursionError):
        raise PeerRequestError(f"HTTP status {answer.status}, not JSON: {answer.text}") from None
