"""/health, /livez and /readyz: what the member says of itself, in etcd's words.

    GET /health                  200 {"health":"true","reason":""}
                                 503 {"health":"false","reason":"ALARM NOSPACE"}
    GET /readyz?verbose          200 [+]data_corruption ok ... ok
                                 503 [-]non_learner failed: not supported for learner ...
    GET /readyz/linearizable_read

/health looks at alarms, leader and a read, in this order, and says the first that fails;
?serializable=true leaves the leader out, ?exclude=NOSPACE an alarm. /livez and /readyz run all
their checks but those of ?exclude and tell all results when one fails or ?verbose asks.

The results are counted in `HealthCounts`, for the metrics page.
"""

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from kvstore.batch import AS_ROOT
from kvstore.http.exchange import (
    Request,
    Responder,
    method_not_allowed,
    not_found,
    plain_error,
)
from kvstore.logger import Logger
from kvstore.runtime.local_client import CallRefusedError, LocalClient
from kvstore.wire import rpc
from kvstore.wire.gen import rpc_pb2 as pb

_REASONS: Final = {"NOSPACE": "ALARM NOSPACE", "CORRUPT": "ALARM CORRUPT"}
_ALARM: Final = re.compile(r"memberID:[0-9]+ +alarm:([0-9A-Za-z]+)")  # a line of Status.errors
_GRACE_S: Final = 1.0  # the node's own timeout comes first, with its own text
_READ_KEY: Final = b"\0"  # any key does: what counts is that a read is answered

Check = Callable[[], Awaitable[str]]  # → why it fails; empty: it does not


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
    """Questions to the node, each answered as by an internal caller with every right."""

    def __init__(self, client: LocalClient, request_timeout_s: float) -> None:
        """Ask through client; a read is given up after request_timeout_s."""
        self._client = client
        self._timeout_s = request_timeout_s

    async def status(self) -> pb.StatusResponse:
        """Return leader, alarms, versions and whether the member is a learner."""
        return pb.StatusResponse.FromString(await self._call(rpc.STATUS, b""))

    async def read_fault(self, *, serializable: bool) -> str:
        """Read one key; return why that fails, or an empty text."""
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

    async def serve(self, request: Request, respond: Responder) -> None:
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

    async def _health(self, request: Request, respond: Responder) -> None:
        excluded = frozenset(request.query.get("exclude", ()))
        is_serializable = request.query.get("serializable", [""])[0] == "true"
        reason = await self._first_fault(excluded, is_serializable=is_serializable)
        health = {"health": "false" if reason else "true", "reason": reason}
        text = json.dumps(health, separators=(",", ":"), ensure_ascii=False)
        if reason:
            self._counts.failures += 1
            self._logger.warning("/health error", output=text, status_code=503)
            await plain_error(respond, 503, text)
            return
        self._counts.successes += 1
        await respond.whole(200, [("Content-Type", "text/plain; charset=utf-8")], text.encode())

    async def _first_fault(self, excluded: frozenset[str], *, is_serializable: bool) -> str:
        try:
            status = await self._node.status()
            for alarm in alarms_of(status):
                if alarm not in excluded:
                    return _REASONS.get(alarm, "ALARM UNKNOWN")
            if not is_serializable and status.leader == 0:
                return "RAFT NO LEADER"
            fault = await self._node.read_fault(serializable=is_serializable)
        except CallRefusedError as refused:
            fault = refused.text
        return f"RANGE ERROR:{fault}" if fault else ""

    # /livez, /readyz

    def _chosen(self, kind: str, request: Request) -> list[str]:
        checks = self._checks[kind]
        excluded = {name for name in request.query.get("exclude", ()) if name}
        unknown = excluded - checks.keys()
        if unknown:
            self._logger.warning(
                "some health checks cannot be excluded", missing_health_checks=sorted(unknown)
            )
        return [name for name in checks if name not in excluded]

    async def _checked(
        self, kind: str, names: list[str], request: Request, respond: Responder
    ) -> None:
        checks = self._checks[kind]
        faults = await asyncio.gather(*[_fault(checks[name]) for name in names])
        lines = ""
        for name, fault in zip(names, faults, strict=True):
            self._count(kind, name, is_good=not fault)
            lines += f"[-]{name} failed: {fault}\n" if fault else f"[+]{name} ok\n"
        if any(faults):
            self._logger.error(
                "Health check error", path=request.path, reason=lines, status_code=503
            )
            await plain_error(respond, 503, lines)
            return
        headers = [
            ("Content-Type", "text/plain; charset=utf-8"),
            ("X-Content-Type-Options", "nosniff"),
        ]
        text = lines + "ok\n" if "verbose" in request.query else "ok\n"
        await respond.whole(200, headers, text.encode())

    def _count(self, kind: str, name: str, *, is_good: bool) -> None:
        counts = self._counts
        counts.last[kind, name] = is_good
        key = (kind, name, "success" if is_good else "error")
        counts.totals[key] = counts.totals.get(key, 0) + 1

    async def _serializable_read(self) -> str:
        return await self._node.read_fault(serializable=True)

    async def _linearizable_read(self) -> str:
        return await self._node.read_fault(serializable=False)

    async def _data_corruption(self) -> str:
        alarms = alarms_of(await self._node.status())
        return "alarm activated: CORRUPT" if "CORRUPT" in alarms else ""

    async def _non_learner(self) -> str:
        return "not supported for learner" if (await self._node.status()).isLearner else ""


def alarms_of(status: pb.StatusResponse) -> list[str]:
    """Return the names of the alarms that are raised, in the cluster's order."""
    found = [_ALARM.fullmatch(each) for each in status.errors]
    return [each[1] for each in found if each is not None]


async def _fault(check: Check) -> str:
    """Run a check; one that cannot be made has failed."""
    try:
        return await check()
    except CallRefusedError as refused:
        return refused.text
