"""Who calls, and what that lets through: credentials at admission, on streams, and after changes.

    take_in ──► calls and streams with a token newer than what is applied here wait (auth_waiting)
    admit   ──► FREE    nothing is asked            (logging in, health)
                TOKEN   a token, if given, is good  (who may what is judged when the entry applies,
                                                     or by a guard when the read is answered)
                USER    somebody is known
                ROOT    somebody with the root role
    permit  ──► watches at their creation; check_renew: every keep-alive
    follow  ──► users, roles or permissions changed: watches that may not go on are canceled, long
                reads end

With auth off nothing of this is done, and calls cost one look at a flag. A credential is
(user, auth revision): a simple token and a certificate are as new as the store when looked at, a
signed token carries its own revision.

Whether a token is good is the tokens' own affair (kvstore.auth.tokens); logging in is auth_logins'.
"""

from collections.abc import Callable
from hashlib import sha256
from typing import Final

from kvstore.apply.auth_guard import READ, WRITE
from kvstore.auth.intervals import OPEN_END
from kvstore.auth.store import ROOT as ROOT_USER
from kvstore.auth.tokens import NOBODY, Who
from kvstore.batch import AS_PEER, AS_ROOT, Inbox, Metadata, Outbox
from kvstore.errors import (
    AUTH_OLD_REVISION,
    INVALID_AUTH_TOKEN,
    USER_EMPTY,
    Code,
    Refusal,
)
from kvstore.node.auth.waiting import Waiting, token_of
from kvstore.node.limits import SECOND_NS
from kvstore.node.parts import Parts
from kvstore.node.reads.reads import Reads
from kvstore.types import LeaseId
from kvstore.wire import rpc
from kvstore.wire.gen import rpc_pb2 as pb

FREE: Final = frozenset(
    {
        rpc.AUTHENTICATE,
        rpc.HEALTH_CHECK,
        rpc.HEALTH_LIST,
        rpc.HEALTH_WATCH,
        # These come back as other calls, with the same metadata.
        rpc.LOCK,
        rpc.UNLOCK,
        rpc.ELECTION_CAMPAIGN,
        rpc.ELECTION_PROCLAIM,
        rpc.ELECTION_LEADER,
        rpc.ELECTION_OBSERVE,
        rpc.ELECTION_RESIGN,
    }
)
USER: Final = frozenset(
    {
        rpc.LEASE_GRANT,
        rpc.LEASE_REVOKE,
        rpc.LEASE_TIME_TO_LIVE,
        rpc.LEASE_LEASES,
        rpc.MEMBER_LIST,
        rpc.STATUS,
        rpc.ALARM,  # to get; to set one: root
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
_STREAMED: Final = frozenset({rpc.RANGE_STREAM})
COMMON_NAME: Final = "tls-common-name"  # of a verified certificate; no client can send it

# How Go prints a status, which is what the reason of a canceled watch is.
_CODE_NAMES: Final = {
    Code.INVALID_ARGUMENT: "InvalidArgument",
    Code.PERMISSION_DENIED: "PermissionDenied",
    Code.UNAUTHENTICATED: "Unauthenticated",
}

Check = Callable[[Who, bytes], Refusal | None]


class AuthChecker:
    """Knows who calls."""

    def __init__(self, parts: Parts, reads: Reads) -> None:
        self._parts = parts
        self._auth = parts.auth
        self._reads = reads
        self._waiting = Waiting(parts.auth.tokens, parts.limits.request_timeout_ns)
        self._streams: dict[int, Metadata] = {}  # of streams that came with any
        self._watch_users: dict[int, str] = {}  # who created the watches of a stream
        self._seen_changes = -1
        self._now_ns = 0
        self._wall_ms = 0
        self._warn_again_ns = 0
        self.who: Who = NOBODY  # of the call being admitted
        self._guards: dict[int, Check] = {
            rpc.RANGE: self._check_range,
            rpc.RANGE_STREAM: self._check_range,
            rpc.TXN: self._check_txn,
            rpc.LEASE_TIME_TO_LIVE: self._check_time_to_live,
            rpc.LEASE_LEASES: self._check_leases,
        }

    @property
    def is_on(self) -> bool:
        """Whether calls must say who makes them."""
        return self._auth.enabled

    # The turn.

    def take_in(self, inbox: Inbox) -> None:
        """Note the time and the new streams; keep back whose token is too new to be known here."""
        self._now_ns, self._wall_ms = inbox.now_ns, inbox.wall_ms
        metadata = inbox.metadata
        if metadata and inbox.opened:
            for stream_id, _ in inbox.opened:
                if stream_id in metadata:
                    self._streams[stream_id] = metadata[stream_id]
        if self._waiting.is_busy or (self._auth.enabled and metadata):
            self._waiting.sift(inbox, self._parts.raft.applied)

    @property
    def has_ready(self) -> bool:
        """Whether something kept back could go on in a next turn."""
        return self._waiting.is_busy and self._waiting.has_ready(self._parts.raft.applied)

    def forget(self, stream_id: int) -> None:
        """Let go of a stream that ended."""
        self._streams.pop(stream_id, None)
        self._watch_users.pop(stream_id, None)

    def follow(self, out: Outbox) -> None:
        """Take in what applied entries changed about who may what; before their events leave."""
        auth, hub = self._auth, self._parts.hub
        if auth.changes == self._seen_changes:
            return
        self._seen_changes = auth.changes
        if not auth.enabled:
            hub.permit = None
            return
        hub.permit = self._permit
        self._reads.end_long(AUTH_OLD_REVISION, out)
        hub.recheck(self._still_permits(), out.deliveries)

    # Calls.

    def admit(
        self, call_id: int, method: int, body: bytes, metadata: Metadata | None
    ) -> Refusal | None:
        """Say why a call is not let in, or None; what it proposes and reads is then its caller's.

        done() is to be called when the batch is through.
        """
        self.who, self._reads.guard = NOBODY, None
        if method in FREE:
            return None
        who = self.identify(metadata)
        if isinstance(who, Refusal):
            return who
        if who is not None:
            self.who = who
        elif method in USER:
            return USER_EMPTY
        if method in ROOT or (method == rpc.ALARM and _sets_alarm(body)):
            return self._auth.check_admin(who)
        check = self._guards.get(method)
        if check is not None:
            self._reads.guard = self._guard(call_id, method, body, metadata, check)
        return None

    def done(self) -> None:
        """Forget the call admitted last."""
        self.who, self._reads.guard = NOBODY, None

    def identify(self, metadata: Metadata | None) -> Who | Refusal | None:
        """Tell who makes a call; None: nobody is named; a refusal: the token is not good."""
        if not metadata:
            return None
        if metadata is AS_ROOT or metadata is AS_PEER:
            return ROOT_USER, self._auth.revision
        token = token_of(metadata)
        if token is None:
            name = metadata.get(COMMON_NAME) if self._parts.limits.client_cert_auth else None
            return None if name is None else (name, self._auth.revision)
        auth = self._auth
        who = auth.tokens.identify(token, auth.revision, self._now_ns, self._wall_ms)
        if who is not None:
            return who
        if self._now_ns >= self._warn_again_ns:
            self._warn_again_ns = self._now_ns + SECOND_NS
            fingerprint = sha256(token.encode(errors="replace")).hexdigest()[:12]
            self._parts.logger.warning("invalid auth token", token_fingerprint=fingerprint)
        return INVALID_AUTH_TOKEN

    def credential(self, metadata: Metadata | None) -> Who | Refusal:
        """Return what goes into an entry's header: NOBODY with auth off, or if none is named."""
        if not self._auth.enabled:
            return NOBODY
        return self.identify(metadata) or NOBODY

    def _guard(
        self, call_id: int, method: int, body: bytes, metadata: Metadata | None, check: Check
    ) -> Callable[[Outbox], bool]:
        """Return what decides, when a read is about to be answered, whether it may be."""

        def guard(out: Outbox) -> bool:
            refusal = None
            if self._auth.enabled:
                who = self.identify(metadata)
                refusal = who if isinstance(who, Refusal) else check(who or NOBODY, body)
            if refusal is None:
                return True
            answers = out.ends if method in _STREAMED else out.replies
            answers.append((call_id, refusal.code, refusal.text.encode()))
            return False

        return guard

    def _check_range(self, who: Who, body: bytes) -> Refusal | None:
        return self._parts.applier.guard.range(who, pb.RangeRequest.FromString(body))

    def _check_txn(self, who: Who, body: bytes) -> Refusal | None:
        return self._parts.applier.guard.txn(who, pb.TxnRequest.FromString(body))

    def _check_time_to_live(self, who: Who, body: bytes) -> Refusal | None:
        request = pb.LeaseTimeToLiveRequest.FromString(body)
        return self._parts.applier.guard.lease_keys(who, request.ID, READ) if request.keys else None

    def _check_leases(self, who: Who, _body: bytes) -> Refusal | None:
        for lease in self._parts.lessor.leases():
            refusal = self._parts.applier.guard.lease_keys(who, lease, READ)
            if refusal is not None:
                return refusal
        return None

    # Streams.

    def check_renew(self, stream_id: int, lease: LeaseId) -> Refusal | None:
        """Say why a stream may not keep a lease alive: that takes write on all its keys."""
        if not self._auth.enabled:
            return None
        who = self.identify(self._streams.get(stream_id))
        if isinstance(who, Refusal):
            return who
        if who is None:
            return USER_EMPTY
        return self._parts.applier.guard.lease_keys(who, lease, WRITE)

    def _permit(self, stream_id: int, key: bytes, end: bytes | None) -> str | None:
        """Say why a stream may not watch a range; the first watcher names the stream's user."""
        who = self.identify(self._streams.get(stream_id))
        if isinstance(who, Refusal):
            return _reason(who)
        refusal = self._auth.check(who or NOBODY, key, _range_end(end), READ)
        if refusal is not None:
            return _reason(refusal)
        if who is not None:
            self._watch_users[stream_id] = who[0]
        return None

    def _still_permits(self) -> Callable[[int, bytes, bytes | None], str | None]:
        """Return what says why a running watch may not go on; many watch the same."""
        known: dict[tuple[str, bytes, bytes | None], str | None] = {}

        def permit(stream_id: int, key: bytes, end: bytes | None) -> str | None:
            name = self._watch_users.get(stream_id)
            if name is None:  # it began when auth was off
                return self._permit(stream_id, key, end)
            asked = (name, key, end)
            if asked not in known:
                refusal = self._auth.check_user(name, key, _range_end(end), READ)
                known[asked] = None if refusal is None else _reason(refusal)
            return known[asked]

        return permit


def _sets_alarm(body: bytes) -> bool:
    return pb.AlarmRequest.FromString(body).action != pb.AlarmRequest.GET


def _range_end(end: bytes | None) -> bytes:
    """Return a watcher's end as requests have it."""
    if end is None:
        return b""
    return end or OPEN_END


def _reason(refusal: Refusal) -> str:
    return f"rpc error: code = {_CODE_NAMES[Code(refusal.code)]} desc = {refusal.text}"
