"""/health, /livez and /readyz: the member's health, with etcd's texts.

    GET /health                  200 {"health":"true","reason":""}
                                 503 {"health":"false","reason":"ALARM NOSPACE"}
    GET /readyz?verbose          200 [+]data_corruption ok ... ok
                                 503 [-]non_learner failed: not supported for learner ...
    GET /readyz/linearizable_read

/health checks alarms, leader and a read, in this order, and reports the first that fails;
?serializable=true skips the leader, ?exclude=NOSPACE an alarm. /livez and /readyz run all their
checks except those of ?exclude, and report all results if one fails or with ?verbose.

The results are counted in `HealthCounts`, for the metrics page.
"""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from kvstack.component.logger import Logger
from kvstore.batch import AS_ROOT
from kvstore.http.exchange import (
    NO_SNIFF,
    PLAIN_TEXT,
    PageRequest,
    Responder,
    method_not_allowed,
    not_found,
    plain_error,
)
from kvstore.runtime.local_client import CallRefusedError, LocalClient
from kvstore.wire import rpc
from kvstore.wire.gen import rpc_pb2 as pb

_REASONS: Final = {"NOSPACE": "ALARM NOSPACE", "CORRUPT": "ALARM CORRUPT"}
_ALARM: Final = re.compile(r"memberID:[0-9]+ +alarm:([0-9A-Za-z]+)")  # a line of Status.errors
_GRACE_S: Final = 1.0  # longer than the node's own timeout, whose error text is more exact
_READ_KEY: Final = b"\0"  # any key will do: only whether the read succeeds matters

Check = Callable[[], Awaitable[str]]  # → the reason of a failure; empty: it passes


@dataclass(slots=True)
class HealthCounts:
    """Results so far: etcd_server_health_* and etcd_server_healthcheck*."""

    successes: int = 0
    failures: int = 0
    last: dict[tuple[str, str], bool] = field(default_factory=dict)  # by (type, check's name)
    totals: dict[tuple[str, str, str], int] = field(
        default_factory=dict
    )  # by (type, check's name, "success" or "error")


class NodeHealth:
    """Calls of the node as an internal caller with root's permission."""

    def __init__(self, client: LocalClient, request_timeout_s: float) -> None:
        """Call through client; a read fails after request_timeout_s."""
        self._client = client
        self._timeout_s = request_timeout_s

    async def status(self) -> pb.StatusResponse:
        """Return the leader, the alarms, the versions and whether the member is a learner."""
        return pb.StatusResponse.FromString(await self._call(rpc.STATUS, b""))

    async def read_error(self, *, serializable: bool) -> str:
        """Read one key; return the error, or an empty text."""
        request = pb.RangeRequest(key=_READ_KEY, keys_only=True, limit=1, serializable=serializable)
        try:
            await self._call(rpc.RANGE, request.SerializeToString())
        except CallRefusedError as refused:
            return refused.text
        return ""

    async def _call(self, method_id: int, body: bytes) -> bytes:
        return await self._client.call(
            method_id, body, AS_ROOT, timeout_s=self._timeout_s + _GRACE_S
        )


class HealthPages:
    """Serves the three families of paths."""

    def __init__(self, node: NodeHealth, logger: Logger, counts: HealthCounts) -> None:
        self._node = node
        self._logger = logger
        self._counts = counts
        live: dict[str, Check] = {"serializable_read": self._serializable_read}
        self._checks: dict[str, dict[str, Check]] = {
            "livez": live,
            "readyz": {
                "data_corruption": self._data_corruption,
                **live,
                "linearizable_read": self._linearizable_read,
                "non_learner": self._non_learner,
            },
        }

    def paths(self) -> list[str]:
        """Return every path served here."""
        paths = ["/health"]
        for kind, checks in self._checks.items():
            paths += [f"/{kind}", *[f"/{kind}/{name}" for name in checks]]
        return paths

    async def serve(self, request: PageRequest, respond: Responder) -> None:
        """Answer one request."""
        if request.method != "GET":
            await method_not_allowed(respond, "GET")
            return
        kind, _, name = request.path[1:].partition("/")
        if kind == "health":
            await self._health(request, respond)
        elif name and name not in self._checks[kind]:
            await not_found(respond)
        else:
            names = [name] if name else self._chosen(kind, request)
            await self._checked(kind, names, request, respond)

    # /health

    async def _health(self, request: PageRequest, respond: Responder) -> None:
        excluded = frozenset(request.query.get("exclude", ()))
        is_serializable = request.query.get("serializable", [""])[0] == "true"
        reason = await self._first_failure(excluded, is_serializable=is_serializable)
        if reason:
            self._counts.failures += 1
        else:
            self._counts.successes += 1
        await answer_health(respond, reason, self._logger)

    async def _first_failure(self, excluded: frozenset[str], *, is_serializable: bool) -> str:
        try:
            status = await self._node.status()
            for alarm in alarms_of(status):
                if alarm not in excluded:
                    return _REASONS.get(alarm, "ALARM UNKNOWN")
            if not is_serializable and status.leader == 0:
                return "RAFT NO LEADER"
            failure = await self._node.read_error(serializable=is_serializable)
        except CallRefusedError as refused:
            failure = refused.text
        return f"RANGE ERROR:{failure}" if failure else ""

    # /livez, /readyz

    def _chosen(self, kind: str, request: PageRequest) -> list[str]:
        checks = self._checks[kind]
        excluded = {name for name in request.query.get("exclude", ()) if name}
        unknown = excluded - checks.keys()
        if unknown:
            self._logger.warning(
                "some health checks cannot be excluded", missing_health_checks=sorted(unknown)
            )
        return [name for name in checks if name not in excluded]

    async def _checked(
        self, kind: str, names: list[str], request: PageRequest, respond: Responder
    ) -> None:
        checks = self._checks[kind]
        failures = await asyncio.gather(*[_failure(checks[name]) for name in names])
        lines = ""
        for name, failure in zip(names, failures, strict=True):
            self._count(kind, name, is_good=not failure)
            lines += f"[-]{name} failed: {failure}\n" if failure else f"[+]{name} ok\n"
        if any(failures):
            self._logger.error(
                "Health check error", path=request.path, reason=lines, status_code=503
            )
            await plain_error(respond, 503, lines)
            return
        text = lines + "ok\n" if "verbose" in request.query else "ok\n"
        await respond.whole(200, [PLAIN_TEXT, NO_SNIFF], text.encode())

    def _count(self, kind: str, name: str, *, is_good: bool) -> None:
        counts = self._counts
        counts.last[kind, name] = is_good
        key = (kind, name, "success" if is_good else "error")
        counts.totals[key] = counts.totals.get(key, 0) + 1

    async def _serializable_read(self) -> str:
        return await self._node.read_error(serializable=True)

    async def _linearizable_read(self) -> str:
        return await self._node.read_error(serializable=False)

    async def _data_corruption(self) -> str:
        alarms = alarms_of(await self._node.status())
        return "alarm activated: CORRUPT" if "CORRUPT" in alarms else ""

    async def _non_learner(self) -> str:
        return "not supported for learner" if (await self._node.status()).isLearner else ""


async def answer_health(respond: Responder, reason: str, logger: Logger) -> None:
    """Answer a request for /health; reason: why it is not healthy, empty if it is."""
    health = {"health": "false" if reason else "true", "reason": reason}
    text = json.dumps(health, separators=(",", ":"), ensure_ascii=False)
    if reason:
        logger.warning("/health error", output=text, status_code=503)
        await plain_error(respond, 503, text)
        return
    await respond.whole(200, [PLAIN_TEXT], text.encode())


def alarms_of(status: pb.StatusResponse) -> list[str]:
    """Return the names of the alarms that are raised, in the cluster's order."""
    found = [_ALARM.fullmatch(each) for each in status.errors]
    return [each[1] for each in found if each is not None]


async def _failure(check: Check) -> str:
    """Run a check; an exception is a failure."""
    try:
        return await check()
    except CallRefusedError as refused:
        return refused.text
