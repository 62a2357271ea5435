"""Who may do what: every call, stream and log entry is compared with the model of auth.

    entry     its header names the caller, at an auth revision the asked member may have known;
              whether it is refused is decided by the model at the entry's own index
    answer    the caller was admitted at some index since the call was made; what is shown was
              allowed at the very index the answering member has applied
    refusal   was right at some index since the call was made
    watch     an event goes only to a caller who may read the watcher's range, at the index the
              member has applied
    login     a token is given for a password that was right at the token's own log index, after
              everything that was acknowledged before the call

An acknowledged change of auth is below every later call's floor, so that the rules above make
changes linearizable with calls.
"""

from base64 import b64decode
from collections.abc import Iterator, Mapping
from typing import Any, Final, Protocol

from kvstore import errors
from kvstore.wire import rpc
from kvstore.wire.gen import rpc_pb2 as pb
from kvstore.wire.internal import Field, credentials
from tests.sim.access.auth_model import READ, WRITE, AuthModel, AuthState, Credential, hash_of
from tests.sim.calls import Call, Caller, CallerKind, Mark
from tests.sim.token_keys import claims_of
from tests.sim.violation import demand

NEEDS_USER: Final = frozenset(
    {
        rpc.LEASE_GRANT,
        rpc.LEASE_REVOKE,
        rpc.LEASE_TIME_TO_LIVE,
        rpc.LEASE_LEASES,
        rpc.MEMBER_LIST,
        rpc.STATUS,
        rpc.ALARM,
    }
)
NEEDS_ADMIN: Final = frozenset(
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
    }
)
REFUSALS: Final = frozenset(  # of a caller, whatever the request
    each.text
    for each in (
        errors.USER_EMPTY,
        errors.USER_NOT_FOUND,
        errors.PERMISSION_DENIED,
        errors.AUTH_OLD_REVISION,
        errors.INVALID_AUTH_TOKEN,
        errors.AUTH_FAILED,
        errors.AUTH_NOT_ENABLED,
        errors.NO_PASSWORD_USER,
    )
)
SECRET: Final = b"secret-"  # what every password begins with
_INVALID: Final = errors.INVALID_AUTH_TOKEN.text
_SETS_PASSWORD: Final = frozenset({rpc.AUTH_USER_ADD, rpc.AUTH_USER_CHANGE_PASSWORD})
_WRITES: Final[Mapping[int, Any]] = {
    Field.PUT: pb.PutRequest,
    Field.DELETE_RANGE: pb.DeleteRangeRequest,
    Field.TXN: pb.TxnRequest,
    Field.LEASE_REVOKE: pb.LeaseRevokeRequest,
}
_READS: Final = frozenset({rpc.RANGE, rpc.RANGE_STREAM, rpc.TXN})

Need = tuple[bytes, bytes, int]
"""(key, range end, access)"""


class History(Protocol):
    """What was applied where, and when: of the checker of all answers what this one reads."""

    applied: dict[int, int]
    marks: list[Mark]
    lease_states: list[dict[int, tuple[int, tuple[bytes, ...]]]]
    now_ns: int
    timeout_ns: int

    @property
    def index(self) -> int:
        """The highest index any member has applied."""


class AccessChecker:
    """The rules of one cluster."""

    def __init__(self, history: History, model: AuthModel, token_ttl_ns: int) -> None:
        self.model = model
        self.lost_before: dict[int, int] = {}  # member → tokens given out up to here are unknown
        self.refused: dict[str, int] = {}  # how often each refusal was seen
        self.allowed = 0  # answers to callers who needed permission and had it
        self._history = history
        self._token_ttl_ns = token_ttl_ns
        self._given: set[str] = set()  # tokens of letters

    @property
    def _is_used(self) -> bool:
        return len(self.model.states) > 1

    def _state(self, index: int) -> AuthState:
        return self.model.states[self._history.marks[index].auth]

    def _leases(self, index: int) -> Mapping[int, tuple[int, tuple[bytes, ...]]]:
        history = self._history
        return history.lease_states[history.marks[index].leases]

    def _indexes(self, caller: Caller, first: int, last: int) -> Iterator[int]:
        """Yield indexes from first to last, one of each that are alike for a caller."""
        seen = set()
        token = self.model.tokens.get(caller.token)
        for index in range(min(first, last), last + 1):
            mark = self._history.marks[index]
            alike = mark.auth, mark.leases, token is not None and token.is_valid(index)
            if alike not in seen:
                seen.add(alike)
                yield index

    def _window(self, call: Call) -> Iterator[int]:
        """Yield the indexes a call may have been admitted or answered at."""
        here = self._history.applied.get(call.member, self._history.index)
        return self._indexes(call.caller, call.local, here)

    def _credential(self, caller: Caller, index: int) -> Credential | str | None:
        """Return a caller's credential; None: the caller is nobody; a text: the refusal."""
        revision = self._state(index).revision
        match caller.kind:
            case CallerKind.NOBODY:
                return None
            case CallerKind.PROCESS:
                return "root", revision
            case CallerKind.CERTIFICATE:
                return caller.user, revision
            case CallerKind.TOKEN:
                if self.model.are_signed:
                    return claims_of(caller.token) or _INVALID
                token = self.model.tokens.get(caller.token)
                is_valid = token is not None and token.is_valid(index)
                return (caller.user, revision) if is_valid else _INVALID

    # Entries.

    def entry_refusal(self, request_field: int, body: bytes, credential: Credential) -> str:
        """Return why an entry must be refused, by the newest state; or nothing."""
        kind, state = _WRITES.get(request_field), self.model.state
        if kind is None or not state.enabled:
            return ""
        leases = self._history.lease_states[-1]
        needs = _needs_of(kind.FromString(body), leases, is_admin=_is_admin(state, credential))
        return _first_refusal(state, credential, needs)

    def check_header(self, call: Call, data: bytes) -> None:
        """Check that an entry names the caller of the call it came from."""
        named = credentials(data)
        known: set[Credential | str | None] = set()
        for index in self._window(call):
            enabled = self._state(index).enabled
            known.add(self._credential(call.caller, index) if enabled else None)
        expected = {("", 0) if each is None else each for each in known}
        demand(named in expected, "an entry of", call.caller, "names", named, "not of", expected)

    def check_secret(self, data: bytes) -> None:
        """Check that an entry holds no password."""
        demand(SECRET not in data, "a password is in the log:", data)

    # Answers.

    def check_answered(self, call: Call, response: Any) -> None:
        """Check that a call may have been answered as it was."""
        if not self._is_used or call.method == rpc.AUTHENTICATE:
            return
        admissions = {self._admission(call, index) for index in self._window(call)}
        demand("" in admissions, call.caller, "was served:", call.request, "and not", admissions)
        self.check_shown(call, response)

    def check_shown(self, call: Call, response: Any) -> None:
        """Check that what is shown now may be shown, at the index the member has applied."""
        here = self._history.applied[call.member]
        if not (self._is_used and call.reads_only and self._state(here).enabled):
            return
        refusal = self._permission(call, here, response)
        demand(not refusal, call.caller, "is shown", call.request, "at index", here, refusal)
        self.allowed += call.caller.kind in (CallerKind.TOKEN, CallerKind.CERTIFICATE)

    def _admission(self, call: Call, index: int) -> str:
        """Return why a call is not admitted at an index, or nothing."""
        state, method = self._state(index), call.method
        if not state.enabled or method == rpc.AUTHENTICATE:
            return ""
        credential = self._credential(call.caller, index)
        if isinstance(credential, str):
            return credential
        if credential is None and (method in NEEDS_USER or method in _SETS_PASSWORD):
            return errors.USER_EMPTY.text if _has_password(call) else ""
        request = call.request
        is_change = isinstance(request, pb.AlarmRequest) and request.action != pb.AlarmRequest.GET
        return state.check_admin(credential) if method in NEEDS_ADMIN or is_change else ""

    def _permission(self, call: Call, index: int, response: Any = None) -> str:
        """Return why a read may not be answered at an index, or nothing.

        response: if it is known, a lease's keys are those that it shows.
        """
        state, method, request = self._state(index), call.method, call.request
        if not (state.enabled and _shows_keys(call)):
            return ""
        credential = self._credential(call.caller, index)
        if isinstance(credential, str):
            return credential
        credential = credential or ("", 0)
        leases = self._leases(index)
        is_admin = _is_admin(state, credential)
        needs: list[Need] = []
        if method in _READS:
            needs = _needs_of(request, leases, is_admin=is_admin)
        elif isinstance(request, pb.LeaseTimeToLiveRequest) and not is_admin:
            shown = response.keys if response is not None else _keys_of(leases, request.ID)
            needs = [(key, b"", READ) for key in shown]
        elif method == rpc.LEASE_LEASES and not is_admin:
            needs = [(key, b"", READ) for _, keys in leases.values() for key in keys]
        return _first_refusal(state, credential, needs)

    # Refusals.

    def explains(self, call: Call, text: str) -> bool:
        """Tell whether a refusal of the caller was right at some index since the call was made."""
        if text not in REFUSALS:
            return False
        self.refused[text] = self.refused.get(text, 0) + 1
        if call.method == rpc.AUTHENTICATE:
            return any(self._login_refusal(call, index) == text for index in self._window(call))
        if not self._is_used:
            return False
        if text == _INVALID:
            return self._may_be_unknown(call)
        if text == errors.AUTH_OLD_REVISION.text and call.reads_only:
            here = self._history.applied[call.member]
            marks = self._history.marks
            has_changed = marks[call.local].auth != marks[here].auth
            if has_changed or self.lost_before.get(call.member, 0) > call.local:
                return True
        return any(
            text in (self._admission(call, index), self._permission(call, index))
            for index in self._window(call)
        ) or self._hides_lease_keys(call, text)

    def _hides_lease_keys(self, call: Call, text: str) -> bool:
        """Tell whether a lease's keys, as the leader knew them, were not to be shown."""
        history, request = self._history, call.request
        if not isinstance(request, pb.LeaseTimeToLiveRequest):
            return False
        first, last = history.marks[call.local].leases, history.marks[history.index].leases
        states = history.lease_states[first : last + 1]
        keys = {key for state in states for key in _keys_of(state, request.ID)}
        shown = pb.LeaseTimeToLiveResponse(keys=sorted(keys))
        return any(text == self._permission(call, index, shown) for index in self._window(call))

    def _may_be_unknown(self, call: Call) -> bool:
        """Tell whether the asked member may refuse a token: once it was given, all know it."""
        caller, history = call.caller, self._history
        if caller.kind != CallerKind.TOKEN:
            return False
        token = self.model.tokens.get(caller.token)
        if token is None:
            return not (self.model.are_signed and claims_of(caller.token))
        if self.lost_before.get(call.member, 0) >= token.from_index:
            return True
        if history.now_ns - token.from_ns >= self._token_ttl_ns:
            return True
        if history.now_ns - call.asked_ns >= history.timeout_ns:
            return True
        was_enabled = self._state(call.local).enabled
        return any(
            not token.is_valid(index) and (index >= token.from_index or not was_enabled)
            for index in self._window(call)
        )

    # Logins.

    def _login_refusal(self, call: Call, index: int) -> str:
        state, request = self._state(index), call.request
        assert isinstance(request, pb.AuthenticateRequest)
        if not state.enabled:
            return errors.AUTH_NOT_ENABLED.text
        user = state.users.get(request.name)
        if user is None:
            return errors.AUTH_FAILED.text
        if user.password is None:
            # One that lost its password after the check is refused as if it were not there.
            return errors.NO_PASSWORD_USER.text
        is_right = user.password == hash_of(request.password.encode())
        return "" if is_right else errors.AUTH_FAILED.text

    def check_login(self, call: Call, response: pb.AuthenticateResponse) -> None:
        """Check the token a login was answered with."""
        request, text = call.request, response.token
        assert isinstance(request, pb.AuthenticateRequest)
        if self.model.are_signed:
            claims = claims_of(text)
            demand(claims, "a token that nobody signed:", text)
            assert claims is not None
            demand(claims[0] == request.name, "a token of", claims, "for", request.name)
            here = self._history.applied[call.member]
            is_right = any(
                self._state(index).revision == claims[1] and not self._login_refusal(call, index)
                for index in self._indexes(call.caller, call.floor, here)
            )
            demand(is_right, "a wrong password got a token:", request, claims)
            return
        token = self.model.tokens.get(text)
        demand(token, "a token that is in no entry:", text)
        assert token is not None
        demand(token.user == request.name, "a token of", token, "for", request.name)
        demand(token.from_index > call.floor, "a token of before the login:", token, call.floor)
        refusal = self._login_refusal(call, token.from_index)
        demand(not refusal, "a wrong password got a token:", request, refusal)
        demand(text not in self._given, "a token is given twice:", text)
        self._given.add(text)

    # Streams.

    def check_watching(self, caller: Caller, member: int, key: bytes, end: bytes) -> None:
        """Check that a caller may watch a range, at the index the member has applied."""
        here = self._history.applied[member]
        refusal = self._watch_refusal(caller, here, key, end)
        demand(not refusal, caller, "is shown events of", key, end, "at index", here, refusal)

    def may_watch(self, caller: Caller, member: int, key: bytes, end: bytes) -> bool:
        """Tell whether a caller may watch a range, at the index the member has applied."""
        return not self._watch_refusal(caller, self._history.applied[member], key, end)

    def _watch_refusal(self, caller: Caller, index: int, key: bytes, end: bytes) -> str:
        """Return why events may not be sent; the token may have ended since the watch began."""
        state = self._state(index)
        if not state.enabled or caller.kind == CallerKind.PROCESS:
            return ""
        if not caller.user:
            return _INVALID if caller.kind == CallerKind.TOKEN else errors.USER_EMPTY.text
        return state.check_user(caller.user, key, end, READ)

    def explains_cancel(
        self, caller: Caller, member: int, since: int, watched: tuple[bytes, bytes], reason: str
    ) -> bool:
        """Tell whether a watch may have ended for a reason, at some index since then."""
        if not self._is_used:
            return False
        key, end = watched
        text = reason.partition(" desc = ")[2]
        self.refused[text] = self.refused.get(text, 0) + 1
        for index in self._indexes(caller, since, self._history.applied[member]):
            state, credential = self._state(index), self._credential(caller, index)
            if not state.enabled:
                continue
            if text == self._watch_refusal(caller, index, key, end):
                return True
            if text == _INVALID and caller.kind == CallerKind.TOKEN:
                return True  # it may have expired
            if not isinstance(credential, str):
                credential = credential or ("", 0)
                if text == state.check(credential, key, end, READ):
                    return True
        return False

    def check_renewal(self, call: Call) -> None:
        """Check that a caller may keep a lease alive, at the index the member has applied."""
        here = self._history.applied[call.member]
        refusal = self._renewal_refusal(call, here)
        demand(not refusal, call.caller, "renews", call.request, "at index", here, refusal)

    def explains_renewal(self, call: Call, text: str) -> bool:
        """Tell whether a keep-alive may be refused."""
        if text == _INVALID and call.caller.kind == CallerKind.TOKEN:
            return self._is_used  # the token may have expired
        return any(self._renewal_refusal(call, index) == text for index in self._window(call))

    def _renewal_refusal(self, call: Call, index: int) -> str:
        state = self._state(index)
        if not state.enabled:
            return ""
        credential = self._credential(call.caller, index)
        if isinstance(credential, str):
            return credential
        if credential is None:
            return errors.USER_EMPTY.text
        if _is_admin(state, credential):
            return ""
        assert isinstance(call.request, pb.LeaseKeepAliveRequest)
        keys = _keys_of(self._leases(index), call.request.ID)
        return _first_refusal(state, credential, [(key, b"", WRITE) for key in keys])


def sets_password(body: bytes, call: Call) -> bool | None:
    """Tell whether an entry's body is a call's, with the hash in the place of the password.

    None: the call sets no password.
    """
    request: Any = call.request
    if call.method not in _SETS_PASSWORD or not request.password:
        return None
    found = type(request).FromString(body)
    wanted = hash_of(request.password.encode())
    is_same = found.name == request.name and not found.password
    return is_same and b64decode(found.hashedPassword) == wanted


def _shows_keys(call: Call) -> bool:
    """Tell whether a read's answer needs permission."""
    if isinstance(call.request, pb.LeaseTimeToLiveRequest):
        return call.request.keys
    return call.method in _READS or call.method == rpc.LEASE_LEASES


def _has_password(call: Call) -> bool:
    """Tell whether a call without a credential is refused before a password is hashed."""
    return call.method not in _SETS_PASSWORD or bool(getattr(call.request, "password", ""))


def _is_admin(state: AuthState, credential: Credential) -> bool:
    return not state.check_admin(credential)


def _keys_of(leases: Mapping[int, tuple[int, tuple[bytes, ...]]], lease: int) -> tuple[bytes, ...]:
    return leases[lease][1] if lease in leases else ()


def _first_refusal(state: AuthState, credential: Credential, needs: list[Need]) -> str:
    refusals = (state.check(credential, *need) for need in needs)
    return next((each for each in refusals if each), "")


def _needs_of(
    request: Any, leases: Mapping[int, tuple[int, tuple[bytes, ...]]], *, is_admin: bool
) -> list[Need]:
    """Return the accesses a request needs, those of both branches of a transaction."""
    match request:
        case pb.RangeRequest():
            return [(request.key, request.range_end, READ)]
        case pb.PutRequest():
            needs = [(request.key, b"", WRITE)]
            if request.lease and not is_admin:
                needs += [(key, b"", WRITE) for key in _keys_of(leases, request.lease)]
            return needs + [(request.key, b"", READ)] * request.prev_kv
        case pb.DeleteRangeRequest():
            accesses = [WRITE] + [READ] * request.prev_kv
            return [(request.key, request.range_end, access) for access in accesses]
        case pb.LeaseRevokeRequest():
            keys = () if is_admin else _keys_of(leases, request.ID)
            return [(key, b"", WRITE) for key in keys]
        case pb.TxnRequest():
            needs = [(each.key, each.range_end, READ) for each in request.compare]
            for op in [*request.success, *request.failure]:
                part = getattr(op, str(op.WhichOneof("request")))
                needs += _needs_of(part, leases, is_admin=is_admin)
            return needs
        case _:
            raise TypeError(f"no rule for {type(request).__name__}")
