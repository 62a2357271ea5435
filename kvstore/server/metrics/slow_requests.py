"""Slow requests and their causes: logged as etcd does, and kept for the status page.

    arrived ──── stages so far ────┐
    answered ─── stages so far ────┴──► difference: how long each stage took meanwhile
                                        rest: waiting for other members, or the turn's other work

The cause is the stage with the longest time. The log is rate limited and says how many lines it
left out; the page shows the last KEPT_MAX requests that were logged. Values, passwords and tokens
are never shown (see `kvstore.wire.loggable`).
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from google.protobuf.message import DecodeError

from kvstack.component.clock import Clock
from kvstack.component.logger import Logger
from kvstack.component.units import MILLISECOND_NS
from kvstore.errors import Code
from kvstore.node.metering.rate_limiter import RateLimiter
from kvstore.server.metrics.calls import SlowCalls, Stages
from kvstore.wire import rpc
from kvstore.wire.gen import rpc_pb2 as pb
from kvstore.wire.loggable import duration_text, loggable
from kvstore.wire.rpc import METHODS

KEPT_MAX: Final = 100
_NO_REMOTE: Final = "No remote client info."
STAGE_NAMES: Final = ("disk sync", "database commit", "applying", "reading")
_REST_OF_TURN: Final = "other work of the turn"
_REST_OF_WAIT: Final = "waiting for other members"
_REST_ALONE: Final = "waiting for its turn"
_LOGGED_WHOLE: Final = frozenset({rpc.RANGE, rpc.PUT, rpc.DELETE_RANGE, rpc.TXN})


PeerOf = Callable[[int], str | None]  # call id → the client's address


@dataclass(slots=True, frozen=True)
class SlowRequest:
    """A slow request, as a row of the status page."""

    at_ms: int  # Unix time
    method: str
    code: str
    count: int  # calls that were slow together
    took_ms: float
    cause: str
    stages_ms: dict[str, float]
    request: str


class SlowRequests:
    """Logs slow requests and keeps the last ones."""

    def __init__(self, logger: Logger, clock: Clock) -> None:
        self._logger = logger
        self._clock = clock
        self._rate_limiter = RateLimiter()
        self.kept: deque[SlowRequest] = deque(maxlen=KEPT_MAX)
        self.peer_of: PeerOf = lambda _: None  # the transport's, once there is one

    def add(self, slow: SlowCalls, after: Stages, *, is_alone: bool) -> None:
        """Add calls that were slow; after: ns spent in each stage by now."""
        omitted = self._rate_limiter.admit("request", self._clock.monotonic_ns())
        if omitted is None:
            return
        rest = _REST_OF_TURN if slow.in_one_turn else _REST_ALONE if is_alone else _REST_OF_WAIT
        stages = split(slow.took_ns, slow.before, after, rest)
        cause = max(stages, key=stages.__getitem__)
        method = METHODS[slow.method]
        request = _content(slow)
        self.kept.append(
            SlowRequest(
                at_ms=self._clock.unix_ms(),
                method=f"{method.service.rpartition('.')[2]}/{method.name}",
                code=Code(slow.code).name,
                count=slow.count,
                took_ms=slow.took_ns / MILLISECOND_NS,
                cause=cause,
                stages_ms={name: took / MILLISECOND_NS for name, took in stages.items()},
                request=request,
            )
        )
        self._log(slow, stages, cause, request, omitted)

    def _remote(self, slow: SlowCalls) -> str:
        call_id = slow.call_id
        if call_id is None or call_id < 0:  # unknown, or the gateway's, which has no peer
            return _NO_REMOTE
        return self.peer_of(call_id) or _NO_REMOTE

    def _log(
        self, slow: SlowCalls, stages: dict[str, int], cause: str, request: str, omitted: int
    ) -> None:
        count, size, response_count, response_size = _sizes(slow)
        start_ms = self._clock.unix_ms() - slow.took_ns // MILLISECOND_NS
        fields: dict[str, object] = {
            "start time": start_ms,
            "time spent": duration_text(slow.took_ns),
            "remote": self._remote(slow),
            "response type": METHODS[slow.method].path,
            "request count": count,
            "request size": size,
            "response count": response_count,
            "response size": response_size,
            "request content": request,
            "cause": cause,
            "stages": {name: duration_text(took) for name, took in stages.items() if took},
        }
        if slow.count > 1:
            fields["slow together"] = slow.count
        if omitted:
            fields["omitted-lines"] = omitted
        self._logger.warning("request stats", **fields)


def split(took_ns: int, before: Stages, after: Stages, rest: str) -> dict[str, int]:
    """Return the share of each stage in took_ns; the remainder is under the name rest."""
    stages = {
        name: max(late - early, 0)
        for name, early, late in zip(STAGE_NAMES, before, after, strict=True)
    }
    stages[rest] = max(took_ns - sum(stages.values()), 0)
    return stages


def _content(slow: SlowCalls) -> str:
    if slow.request is None or slow.method not in _LOGGED_WHOLE:
        return ""
    try:
        return loggable(METHODS[slow.method].request.FromString(slow.request))
    except DecodeError:
        return "malformed"


def _sizes(slow: SlowCalls) -> tuple[int, int, int, int]:
    """Return request count and size, response count and size, as etcd logs them."""
    if slow.request is None or slow.method not in _LOGGED_WHOLE:
        return -1, -1, -1, -1
    size, response_size = len(slow.request), len(slow.response or b"")
    if slow.method == rpc.PUT:
        return 1, size, 0, response_size
    if slow.response is None:
        return 0, size, 0, 0
    if slow.method == rpc.RANGE:
        return 0, size, pb.RangeResponse.FromString(slow.response).count, response_size
    if slow.method == rpc.DELETE_RANGE:
        return 0, size, pb.DeleteRangeResponse.FromString(slow.response).deleted, response_size
    request = pb.TxnRequest.FromString(slow.request)
    succeeded = pb.TxnResponse.FromString(slow.response).succeeded
    ops = request.success if succeeded else request.failure
    return len(ops), sum(op.ByteSize() for op in ops), 0, response_size
