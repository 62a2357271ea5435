"""Health checks of load balancers: a port for each Service that asks for one.

    GET anything     200, or 503 where no endpoint on this node is ready, and how many are

Each is a small server without the crate, which would have a thread for each: a balancer asks every
few seconds, and there may be many Services.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kvstack.agents.proxy.choice import Served
from kvstack.agents.proxy.services import PortName
from kvstack.component.errors import ComponentError, ConfigError
from kvstack.component.http.serving.answer import Answer
from kvstack.component.http.serving.listeners import Listener, ListenerLimits
from kvstack.component.http.serving.request import Request
from kvstack.component.http.serving.server import HttpOptions, HttpServer
from kvstack.component.logger import Logger
from kvstack.component.net.hosts import join_host_port

_LIMITS: Final = ListenerLimits(
    connections_max=100,
    header_bytes_max=8 << 10,
    whole_body_bytes_max=0,
    handshake_timeout_s=5.0,
    idle_timeout_s=5.0,
)
_EVERYWHERE: Final = "0.0.0.0"
"""In both families."""


@dataclass(slots=True)
class _Check:
    """One port that answers."""

    namespace: str
    service: str
    count: int
    server: HttpServer | None = None


class HealthChecks:
    """Answers on the ports that Services ask for."""

    def __init__(
        self,
        hosts: Sequence[str] | None,
        is_well: Callable[[], bool],
        logger: Logger,
        on_failure: Callable[[PortName, int, str], None],
    ) -> None:
        """hosts: where to listen; None: everywhere. on_failure: of a port that cannot be had."""
        self._hosts = (_EVERYWHERE,) if hosts is None else tuple(hosts)
        self._is_well = is_well
        self._logger = logger
        self._on_failure = on_failure
        self._served: dict[PortName, Served] = {}
        self._checks: dict[int, _Check] = {}

    async def follow(self, changes: Mapping[PortName, Served | None]) -> None:
        """Take ports as they are now."""
        touched = set()
        for name, served in changes.items():
            old = self._served.pop(name, None)
            if old is not None:
                touched.add(old.port.health_check_port)
            if served is not None and served.port.health_check_port:
                self._served[name] = served
                touched.add(served.port.health_check_port)
        for port in touched:
            await self._settle(port)

    async def close(self) -> None:
        """Answer no more."""
        for check in self._checks.values():
            if check.server is not None:
                await check.server.stop()
        self._checks.clear()

    async def _settle(self, port: int) -> None:
        """Make one port as it is wanted."""
        wanted = [each for each in self._served.values() if each.port.health_check_port == port]
        known = self._checks.get(port)
        if not wanted:
            self._checks.pop(port, None)
            if known is not None and known.server is not None:
                await known.server.stop()
            return
        name, count = wanted[0].port.name, max(each.local_ready for each in wanted)
        if known is not None and known.server is not None:
            known.namespace, known.service, known.count = name.namespace, name.service, count
            return
        check = _Check(name.namespace, name.service, count)

        async def handle(_request: Request, answer: Answer) -> None:
            found = answer_of(check.namespace, check.service, check.count, is_well=self._is_well())
            answer.send(*found)

        urls = [f"http://{join_host_port(each, port)}" for each in self._hosts]
        listeners = [Listener(each, limits=_LIMITS) for each in urls]
        server = HttpServer(listeners, handle, HttpOptions(portable=True))
        try:
            if not listeners:
                raise ConfigError("the node has no address that serves node ports")
            await server.start()
        except (ComponentError, OSError) as error:
            self._logger.error("no health check of a Service", port=port, reason=str(error))
            self._on_failure(name, port, str(error))
            return
        check.server = server
        self._checks[port] = check


def answer_of(
    namespace: str, service: str, count: int, *, is_well: bool
) -> tuple[int, list[tuple[str, str]], bytes]:
    """Return status, headers and body: as upstream's, to the byte of its body."""
    body = json.dumps(
        {
            "service": {"namespace": namespace, "name": service},
            "localEndpoints": count,
            "serviceProxyHealthy": is_well,
        },
        indent="\t",
    )
    headers = [
        ("Content-Type", "application/json"),
        ("X-Content-Type-Options", "nosniff"),
        ("X-Load-Balancing-Endpoint-Weight", str(count)),
    ]
    return 200 if count and is_well else 503, headers, body.encode()
