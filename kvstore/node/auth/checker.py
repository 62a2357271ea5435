"""Checks credentials and permissions: of calls at admission, of streams, and after changes.

    begin_turn ──► calls and streams with a token newer than what is applied here are deferred
    admit      ──► FREE    no credential is needed     (logging in, health)
                   TOKEN   a token, if given, is valid (permissions are checked when the entry is
                                                        applied, or when the read is answered)
                   USER    a user is named
                   ROOT    a user with the root role is named
    permit     ──► watches at their creation; check_renew: every keep-alive
    follow     ──► users, roles or permissions changed: watches without permission are canceled,
                   reads that take many turns end, as do those admitted without a check

With auth disabled none of this is done, and a call costs one test of a flag. A credential is
(user, auth revision): a simple token and a certificate have the store's revision at the time of the
check, a signed token carries its own.

Rule: what admit finds out about a call is returned as a CallContext and not kept.

Validating tokens is done by kvstore.auth.tokens, logging in by kvstore.node.auth.logins.
"""

from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Final

from kvstack.component.units import SECOND_NS
from kvstore.apply.auth_guard import READ, WRITE
from kvstore.auth.intervals import OPEN_END
from kvstore.auth.store import ROOT as ROOT_USER
from kvstore.auth.tokens import NO_CREDENTIAL, Credential
from kvstore.batch import AS_PEER, AS_ROOT, Inbox, Metadata, Outbox
from kvstore.errors import (
    AUTH_OLD_REVISION,
    INVALID_AUTH_TOKEN,
    USER_EMPTY,
    Code,
    Refusal,
)
from kvstore.node.auth.deferred_calls import DeferredCalls, token_of
from kvstore.node.call_context import NO_METADATA, CallContext, ReadCheck
from kvstore.node.parts import Parts
from kvstore.node.reads.reads import Reads
from kvstore.types import LeaseId
from kvstore.wire import rpc
from kvstore.wire.gen import rpc_pb2 as pb

# The calls that a composed one makes are admitted with the same metadata.
FREE: Final = rpc.COMPOSED | frozenset(
    {rpc.AUTHENTICATE, rpc.HEALTH_CHECK, rpc.HEALTH_LIST, rpc.HEALTH_WATCH}
)
USER: Final = frozenset(
    {
        rpc.LEASE_GRANT,
        rpc.LEASE_REVOKE,
        rpc.LEASE_TIME_TO_LIVE,
        rpc.LEASE_LEASES,
        rpc.MEMBER_LIST,
        rpc.STATUS,
        rpc.ALARM,  # reading alarms; setting one needs root
    }
)
ROOT: Final = frozenset(
    {
        rpc.COMPACT,
        rpc.MEMBER_ADD,
        rpc.MEMBER_REMOVE,
        rpc.MEMBER_UPDATE,
        rpc.MEMBER_PROMOTE,
        rpc.DEFRAGMENT,
        rpc.HASH,
        rpc.HASH_KV,
        rpc.SNAPSHOT,
        rpc.MOVE_LEADER,
        rpc.DOWNGRADE,
    }
)
COMMON_NAME: Final = "tls-common-name"  # of a verified certificate; no client can send it

# As Go prints a status, for the reason of a canceled watch.
_CODE_NAMES: Final = {
    Code.INVALID_ARGUMENT: "InvalidArgument",
    Code.PERMISSION_DENIED: "PermissionDenied",
    Code.UNAUTHENTICATED: "Unauthenticated",
}

Check = Callable[[Credential, bytes], Refusal | None]


class AuthChecker:
    """Checks the credentials and permissions of calls and streams."""

    def __init__(self, parts: Parts, reads: Reads) -> None:
        self._parts = parts
        self._time = parts.time
        self._auth = parts.state.auth
        self._reads = reads
        self._deferred = DeferredCalls(parts.state.auth.tokens, parts.limits.request_timeout_ns)
        self._streams: dict[int, Metadata] = {}  # of the streams that carry any
        self._watch_users: dict[int, str] = {}  # stream → the user that created its watches
        self._seen_changes = -1
        self._was_enabled = parts.state.auth.enabled
        self._warn_again_ns = 0
        reads.check_keys_with(self._check_keys)
        self._read_checks: dict[int, Check] = {
            rpc.RANGE: self._check_range,
            rpc.RANGE_STREAM: self._check_range,
            rpc.TXN: self._check_txn,
            rpc.LEASE_TIME_TO_LIVE: self._check_time_to_live,
            rpc.LEASE_LEASES: self._check_leases,
        }

    @property
    def is_enabled(self) -> bool:
        """Whether calls need credentials."""
        return self._auth.enabled

    # The turn.

    def begin_turn(self, inbox: Inbox) -> None:
        """Note the new streams; defer calls whose token is not known here yet."""
        metadata = inbox.metadata
        if metadata and inbox.opened:
            for stream_id, _ in inbox.opened:
                if stream_id in metadata:
                    self._streams[stream_id] = metadata[stream_id]
        if self._deferred.is_busy or (self._auth.enabled and metadata):
            self._deferred.filter(inbox, self._parts.raft.applied)

    @property
    def is_deferring(self) -> bool:
        """Whether calls are deferred."""
        return self._deferred.is_busy

    @property
    def has_ready(self) -> bool:
        """Whether a deferred call could be handled in the next turn."""
        return self._deferred.is_busy and self._deferred.has_ready(self._parts.raft.applied)

    def forget(self, stream_id: int) -> None:
        """Forget a stream that ended."""
        self._streams.pop(stream_id, None)
        self._watch_users.pop(stream_id, None)

    def follow(self, out: Outbox) -> None:
        """Act on changes of auth by applied entries; before the entries' events are sent."""
        auth, hub = self._auth, self._parts.state.hub
        if auth.changes == self._seen_changes:
            return
        self._seen_changes = auth.changes
        was_enabled, self._was_enabled = self._was_enabled, auth.enabled
        if not auth.enabled:
            hub.permit = None
            return
        if not was_enabled:
            self._reads.refuse_unchecked(AUTH_OLD_REVISION, out)
        hub.permit = self._permit
        self._reads.end_long(AUTH_OLD_REVISION, out)
        hub.recheck(self._still_permits(), out.deliveries)

    # Calls.

    def admit(
        self, call_id: int, method: int, body: bytes, metadata: Metadata | None
    ) -> CallContext | Refusal:
        """Return the context of a call, or why it is refused."""
        carried = metadata or NO_METADATA
        if method in FREE:
            return CallContext(carried)
        credential = self.identify(metadata)
        if isinstance(credential, Refusal):
            return credential
        if credential is None and method in USER:
            return USER_EMPTY
        if method in ROOT or (method == rpc.ALARM and _sets_alarm(body)):
            refusal = self._auth.check_admin(credential)
            if refusal is not None:
                return refusal
        check = self._read_checks.get(method)
        read_check = None
        if check is not None:
            read_check = self._read_check(call_id, method, body, metadata, check)
        return CallContext(carried, credential or NO_CREDENTIAL, read_check)

    def identify(self, metadata: Metadata | None) -> Credential | Refusal | None:
        """Return the credential of a call; None: no user is named; a refusal: an invalid token."""
        if not metadata:
            return None
        if metadata is AS_ROOT or metadata is AS_PEER:
            return ROOT_USER, self._auth.revision
        token = token_of(metadata)
        if token is None:
            name = metadata.get(COMMON_NAME) if self._parts.limits.client_cert_auth else None
            return None if name is None else (name, self._auth.revision)
        auth = self._auth
        credential = auth.tokens.identify(
            token, auth.revision, self._time.now_ns, self._time.wall_ms
        )
        if credential is not None:
            return credential
        if self._time.now_ns >= self._warn_again_ns:
            self._warn_again_ns = self._time.now_ns + SECOND_NS
            fingerprint = sha256(token.encode(errors="replace")).hexdigest()[:12]
            self._parts.logger.warning("invalid auth token", token_fingerprint=fingerprint)
        return INVALID_AUTH_TOKEN

    def credential(self, metadata: Metadata | None) -> Credential | Refusal:
        """Return what goes into an entry's header: NO_CREDENTIAL without auth or a user."""
        if not self._auth.enabled:
            return NO_CREDENTIAL
        return self.identify(metadata) or NO_CREDENTIAL

    def _read_check(
        self, call_id: int, method: int, body: bytes, metadata: Metadata | None, check: Check
    ) -> ReadCheck:
        """Return the check of a read's permission, for the moment when it is answered."""

        def read_check(out: Outbox) -> bool:
            refusal = None
            if self._auth.enabled:
                credential = self.identify(metadata)
                refusal = (
                    credential
                    if isinstance(credential, Refusal)
                    else check(credential or NO_CREDENTIAL, body)
                )
            if refusal is None:
                return True
            (out.end if method == rpc.RANGE_STREAM else out.refuse)(call_id, refusal)
            return False

        return read_check

    def _check_range(self, credential: Credential, body: bytes) -> Refusal | None:
        return self._parts.state.applier.guard.range(credential, pb.RangeRequest.FromString(body))

    def _check_txn(self, credential: Credential, body: bytes) -> Refusal | None:
        return self._parts.state.applier.guard.txn(credential, pb.TxnRequest.FromString(body))

    def _check_time_to_live(self, credential: Credential, body: bytes) -> Refusal | None:
        request = pb.LeaseTimeToLiveRequest.FromString(body)
        return (
            self._parts.state.applier.guard.lease_keys(credential, request.ID, READ)
            if request.keys
            else None
        )

    def _check_keys(self, metadata: Metadata, keys: Sequence[bytes]) -> Refusal | None:
        """Return why a caller may not be shown the keys of a lease, or None."""
        auth = self._auth
        if not auth.enabled:
            return None
        credential = self.identify(metadata)
        if isinstance(credential, Refusal):
            return credential
        if auth.check_admin(credential) is None:
            return None
        checks = (auth.check(credential or NO_CREDENTIAL, key, b"", READ) for key in keys)
        return next((each for each in checks if each is not None), None)

    def _check_leases(self, credential: Credential, _body: bytes) -> Refusal | None:
        for lease in self._parts.state.lessor.leases():
            refusal = self._parts.state.applier.guard.lease_keys(credential, lease, READ)
            if refusal is not None:
                return refusal
        return None

    # Streams.

    def check_renew(self, stream_id: int, lease: LeaseId) -> Refusal | None:
        """Return why a stream may not keep a lease alive: that needs write on all its keys."""
        if not self._auth.enabled:
            return None
        credential = self.identify(self._streams.get(stream_id))
        if isinstance(credential, Refusal):
            return credential
        if credential is None:
            return USER_EMPTY
        return self._parts.state.applier.guard.lease_keys(credential, lease, WRITE)

    def _permit(self, stream_id: int, key: bytes, end: bytes | None) -> str | None:
        """Return why a stream may not watch a range; its user is that of the last watch allowed."""
        credential = self.identify(self._streams.get(stream_id))
        if isinstance(credential, Refusal):
            return _reason(credential)
        refusal = self._auth.check(credential or NO_CREDENTIAL, key, _range_end(end), READ)
        if refusal is not None:
            return _reason(refusal)
        if credential is not None:
            self._watch_users[stream_id] = credential[0]
        return None

    def _still_permits(self) -> Callable[[int, bytes, bytes | None], str | None]:
        """Return the check whether a running watch may go on; it remembers answers."""
        answers: dict[tuple[str, bytes, bytes | None], str | None] = {}

        def permit(stream_id: int, key: bytes, end: bytes | None) -> str | None:
            name = self._watch_users.get(stream_id)
            if name is None:  # it began when auth was disabled
                return self._permit(stream_id, key, end)
            asked = (name, key, end)
            if asked not in answers:
                refusal = self._auth.check_user(name, key, _range_end(end), READ)
                answers[asked] = None if refusal is None else _reason(refusal)
            return answers[asked]

        return permit


def _sets_alarm(body: bytes) -> bool:
    return pb.AlarmRequest.FromString(body).action != pb.AlarmRequest.GET


def _range_end(end: bytes | None) -> bytes:
    """Return a watcher's end as it is written in requests."""
    if end is None:
        return b""
    return end or OPEN_END


def _reason(refusal: Refusal) -> str:
    return f"rpc error: code = {_CODE_NAMES[Code(refusal.code)]} desc = {refusal.text}"
