"""The HTTP requests of other members, answered through the process's own client.

    /version, /members             the state of this member
    /members/promote/<id>          a promotion forwarded to the leader
    /members/hashkv                a hash of the store
    /leases, /leases/internal      renewals and times to live, which only the leader can answer
    /downgrade/enabled             after a read index

Bodies, statuses and texts are etcd's. The peer port has checked the method. Only TLS authenticates
members: requests about leases, members and hashes need no other permission, except a promotion,
which carries its client's token.
"""

import json
import re
from collections.abc import Callable, Coroutine, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, Final, NamedTuple

from google.protobuf.message import DecodeError

from kvstore.batch import AS_PEER, AS_ROOT, Metadata
from kvstore.errors import (
    LEARNER_NOT_READY,
    LEASE_NOT_FOUND,
    MEMBER_NOT_FOUND,
    MEMBER_NOT_LEARNER,
    TIMEOUT_WAIT_APPLY,
)
from kvstore.peers.identity import CLUSTER_ID_MISMATCH
from kvstore.peers.listener import PeerRequest, Reply, plain
from kvstore.runtime.local_client import CallRefusedError, LocalClient
from kvstore.types import SERVER_VERSION, ClusterId
from kvstore.wire import rpc
from kvstore.wire.gen import rpc_pb2 as pb
from kvstore.wire.members import Member, encode_member
from kvstore.wire.varint import BYTES, UINT64_MAX, WireError, read_field, varint

TIMEOUT_S: Final = 10.0
LEASE_MISSING: Final = "lease not found"
APPLY_TOO_LATE: Final = "waiting for node to catch up its applied index has timed out"
_PROMOTE: Final = "/members/promote/"
_DECIMAL: Final = re.compile(r"[0-9]{1,20}")
_JSON: Final = ("Content-Type", "application/json")
_PROTOBUF: Final = ("Content-Type", "application/protobuf")
_PROMOTION_STATUS: Final[Mapping[str, tuple[int, str]]] = {
    MEMBER_NOT_FOUND.text: (404, "membership: ID not found"),
    MEMBER_NOT_LEARNER.text: (412, "membership: can only promote a learner member"),
    LEARNER_NOT_READY.text: (
        412,
        "etcdserver: can only promote a learner member which is in sync with leader",
    ),
}

Submit = Callable[[Coroutine[Any, Any, Reply]], Future[Reply]]


class Facts(NamedTuple):
    """The answers that need no call to the node; the functions are called in the loop's thread."""

    cluster_id: ClusterId
    cluster_version: Callable[[], str | None]  # "3.7.0"; None: not decided
    is_downgrading: Callable[[], bool]


class PeerQuestions:
    """Answers for the peer port."""

    def __init__(self, client: LocalClient, submit: Submit, facts: Facts) -> None:
        """submit runs a coroutine in the loop of client."""
        self._client = client
        self._submit = submit
        self._facts = facts
        self._cluster = ("X-Etcd-Cluster-ID", f"{facts.cluster_id:x}")

    def ask(self, request: PeerRequest, body: bytes) -> Future[Reply]:
        """Answer a request; from any thread."""
        return self._submit(self.answer(request, body))

    async def answer(self, request: PeerRequest, body: bytes) -> Reply:
        """Answer a request."""
        path = request.path
        try:
            if path == "/version":
                return await self._version()
            if path == "/members":
                return await self._members()
            if path == "/members/hashkv":
                return await self._hash_kv(request, body)
            if path == "/leases":
                return await self._renew(body)
            if path == "/leases/internal":
                return await self._time_to_live(body)
            if path == "/downgrade/enabled":
                return await self._downgrade()
            if path.startswith(_PROMOTE):
                return await self._promote(path.removeprefix(_PROMOTE), request.headers)
        except CallRefusedError as error:
            return plain(500, error.text)
        return plain(404, "404 page not found")

    async def _version(self) -> Reply:
        status = pb.StatusResponse.FromString(await self._call(rpc.STATUS, b"", AS_ROOT))
        versions = {
            "etcdserver": SERVER_VERSION,
            "etcdcluster": self._facts.cluster_version() or "not_decided",
            "storage": status.storageVersion or "unknown",
        }
        return Reply(200, [_JSON], json.dumps(versions, separators=(",", ":")).encode())

    async def _members(self) -> Reply:
        request = pb.MemberListRequest(linearizable=False).SerializeToString()
        answer = await self._call(rpc.MEMBER_LIST, request, AS_ROOT)
        return self._list(pb.MemberListResponse.FromString(answer).members)

    def _list(self, members: Iterable[pb.Member]) -> Reply:
        rows = sorted(members, key=lambda member: int(member.ID))
        texts = [
            encode_member(
                Member(
                    member.ID,
                    member.name,
                    list(member.peerURLs),
                    list(member.clientURLs),
                    member.isLearner,
                )
            )
            for member in rows
        ]
        # Go writes a nil list as null.
        body = b"[" + b",".join(texts) + b"]\n" if texts else b"null\n"
        return Reply(200, [self._cluster, _JSON], body)

    async def _promote(self, text: str, headers: Mapping[str, str]) -> Reply:
        member_id = int(text) if _DECIMAL.fullmatch(text) else UINT64_MAX + 1
        if member_id > UINT64_MAX:
            return self._plain(404, f"member {text} not found in cluster")
        token = headers.get("authorization")
        request = pb.MemberPromoteRequest(ID=member_id).SerializeToString()
        try:
            answer = await self._call(
                rpc.MEMBER_PROMOTE, request, {"token": token} if token else None
            )
        except CallRefusedError as error:
            known = _PROMOTION_STATUS.get(error.text)
            if known is not None:
                return self._plain(*known)
            return Reply(500, [self._cluster, _JSON], b'{"message":"Internal Server Error"}')
        return self._list(pb.MemberPromoteResponse.FromString(answer).members)

    async def _hash_kv(self, request: PeerRequest, body: bytes) -> Reply:
        cluster_id = request.headers.get("x-etcd-cluster-id", "")
        if cluster_id and cluster_id != f"{self._facts.cluster_id:x}":
            return plain(412, CLUSTER_ID_MISMATCH)
        revision = _revision(body)
        if revision is None:
            return plain(400, "error unmarshalling request")
        asked = pb.HashKVRequest(revision=revision).SerializeToString()
        try:
            answer = pb.HashKVResponse.FromString(await self._call(rpc.HASH_KV, asked, AS_ROOT))
        except CallRefusedError as error:
            return plain(400, error.text.removeprefix("etcdserver: "))
        numbers = {
            "hash": answer.hash,
            "compact_revision": answer.compact_revision,
            "hash_revision": answer.hash_revision,
        }
        header = {"revision": answer.header.revision} if answer.header.revision else {}
        row = {"header": header, **{name: number for name, number in numbers.items() if number}}
        text = json.dumps(row, separators=(",", ":")).encode()
        return Reply(200, [self._cluster, _JSON], text)

    async def _renew(self, body: bytes) -> Reply:
        try:
            lease = pb.LeaseKeepAliveRequest.FromString(body).ID
        except DecodeError:
            return plain(400, "error unmarshalling request")
        try:
            async with self._client.open(rpc.LEASE_KEEP_ALIVE, AS_PEER) as stream:
                await stream.send(body)
                answer = pb.LeaseKeepAliveResponse.FromString(await anext(stream))
        except StopAsyncIteration:
            return plain(400, "the stream ended without an answer")
        except CallRefusedError as error:
            return _lease_refused(error.text)
        if answer.TTL <= 0:
            return plain(404, LEASE_MISSING)
        found = pb.LeaseKeepAliveResponse(ID=lease, TTL=answer.TTL)
        return Reply(200, [_PROTOBUF], found.SerializeToString())

    async def _time_to_live(self, body: bytes) -> Reply:
        inner = _inner_request(body)
        if inner is None:
            return plain(400, "error unmarshalling request")
        try:
            answer = await self._call(rpc.LEASE_TIME_TO_LIVE, inner, AS_PEER)
        except CallRefusedError as error:
            return _lease_refused(error.text, otherwise=500)
        found = pb.LeaseTimeToLiveResponse.FromString(answer)
        found.header.Clear()
        found.header.SetInParent()
        text = found.SerializeToString()
        return Reply(200, [_PROTOBUF], b"\x0a" + varint(len(text)) + text)

    async def _downgrade(self) -> Reply:
        probe = pb.RangeRequest(key=b"\0", limit=1, keys_only=True).SerializeToString()
        try:
            await self._call(rpc.RANGE, probe, AS_ROOT)
        except CallRefusedError as error:
            return self._plain(500, f"failed linearized read: {error.text}")
        text = b"true" if self._facts.is_downgrading() else b"false"
        return Reply(200, [self._cluster, ("Content-Type", "text/plain")], text)

    async def _call(self, method: int, body: bytes, metadata: Metadata | None) -> bytes:
        return await self._client.call(method, body, metadata, TIMEOUT_S)

    def _plain(self, status: int, text: str) -> Reply:
        return plain(status, text, [self._cluster])


def _lease_refused(text: str, otherwise: int = 400) -> Reply:
    if text == LEASE_NOT_FOUND.text:
        return plain(404, LEASE_MISSING)
    if text == TIMEOUT_WAIT_APPLY.text:
        return plain(408, APPLY_TOO_LATE)
    return plain(otherwise, text)


def _revision(body: bytes) -> int | None:
    """Return the revision of {"revision": N}, 0 if there is none; None if body is invalid."""
    try:
        row = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(row, dict):
        return None
    revision = row.get("revision", 0)
    in_range = type(revision) is int and -(1 << 63) <= revision < 1 << 63
    return revision if in_range else None


def _inner_request(body: bytes) -> bytes | None:
    """Return the LeaseTimeToLiveRequest in a LeaseInternalRequest; None if there is none."""
    inner = None
    at = 0
    try:
        while at < len(body):
            field, kind, value, at = read_field(body, at)
            if field == 1 and kind == BYTES and isinstance(value, bytes):
                inner = value
        if inner is not None:
            pb.LeaseTimeToLiveRequest.FromString(inner)
    except (WireError, DecodeError):
        return None
    return inner
