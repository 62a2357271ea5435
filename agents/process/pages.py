"""The pages of a process: its health and its metrics.

    pages = Pages(access, {"/healthz": checks, …}, read_metrics, {"componentconfig": {…}})
    async with serving(pages, settings): …

    GET /healthz /livez /readyz [?verbose] [&exclude=NAME]    ok, or which check failed
    GET /healthz/NAME …                                       one of the checks
    GET /metrics                                              Prometheus' text
    GET /configz                                              how the process is set up, as JSON

Who may read which is `access`'s affair.
"""

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from socket import gethostname
from typing import Final, Protocol, TypeAlias
from urllib.parse import parse_qs

import orjson

from kvstack.agents.process.access import CLIENTS, Access
from kvstack.agents.process.own_metrics import own_metrics
from kvstack.agents.process.settings import PageSettings
from kvstack.apimachinery.objects.status import ApiError
from kvstack.component.certs.certificates import Profile, issue, new_authority
from kvstack.component.clock import SystemClock
from kvstack.component.http.serving.answer import Answer
from kvstack.component.http.serving.listeners import ClientAuth, KeyPair, Listener, ServerTls
from kvstack.component.http.serving.request import Request
from kvstack.component.http.serving.server import HttpServer
from kvstack.component.metrics.exposition import CONTENT_TYPE, FamilySamples, render
from kvstack.component.net.hosts import join_host_port

Checks: TypeAlias = Mapping[str, Callable[[], bool]]

_TEXT: Final = (
    ("Content-Type", "text/plain; charset=utf-8"),
    ("X-Content-Type-Options", "nosniff"),
)
_JSON: Final = (("Content-Type", "application/json"), ("X-Content-Type-Options", "nosniff"))
_METRICS: Final = "/metrics"
_CONFIGURATION: Final = "/configz"


class Pages:
    """Answers requests."""

    def __init__(
        self,
        access: Access,
        health: Mapping[str, Checks],
        read_metrics: Callable[[], Iterable[FamilySamples]],
        configuration: Mapping[str, object] | None = None,
    ) -> None:
        """health: page (`/healthz`) → the checks that must hold for it, by name; they may grow.

        read_metrics: returns the metrics that only this program has. configuration: the objects of
        /configz by name; None: no such page.
        """
        self._access = access
        self._health = health
        self._read_metrics = read_metrics
        self._configuration = configuration

    async def handle(self, request: Request, answer: Answer) -> None:
        """Answer one request."""
        path, _, query = request.target.partition("?")
        refusal = await self._access.refusal(request, path)
        if refusal is not None:
            _refuse(answer, refusal)
        elif path == _METRICS:
            page = render([*self._read_metrics(), *own_metrics()])
            answer.send(200, (("Content-Type", CONTENT_TYPE),), page)
        elif path == _CONFIGURATION and self._configuration is not None:
            answer.send(200, _JSON, orjson.dumps(self._configuration))
        elif path in self._health:
            self._tell_health(path, query, answer)
        else:
            self._tell_check(path, answer)

    def _tell_health(self, page: str, query: str, answer: Answer) -> None:
        given = parse_qs(query, keep_blank_values=True)
        excluded = {name for each in given.get("exclude", ()) for name in each.split(",")}
        checks = self._health[page]
        results = {name: check() for name, check in checks.items() if name not in excluded}
        is_well = all(results.values())
        name = page[1:]
        if is_well and "verbose" not in given:
            answer.send(200, _TEXT, b"ok")
            return
        lines = [f"[+]{each} excluded: ok" for each in checks if each in excluded]
        lines += [
            f"[+]{each} ok" if well else f"[-]{each} failed: reason withheld"
            for each, well in results.items()
        ]
        lines.append(f"{name} check {'passed' if is_well else 'failed'}")
        answer.send(200 if is_well else 500, _TEXT, ("\n".join(lines) + "\n").encode())

    def _tell_check(self, path: str, answer: Answer) -> None:
        page, _, name = path.rpartition("/")
        check = self._health.get(page, {}).get(name)
        if check is None:
            answer.send(404, _TEXT, b"404 page not found\n")
        elif check():
            answer.send(200, _TEXT, b"ok")
        else:
            answer.send(500, _TEXT, b"internal server error: reason withheld\n")


class Handler(Protocol):
    """Answers requests."""

    async def handle(self, request: Request, answer: Answer) -> None:
        """Answer one request."""
        ...


@asynccontextmanager
async def serving(
    pages: Handler, settings: PageSettings, authorities: Mapping[str, str] | None = None
) -> AsyncGenerator[None]:
    """Serve the pages, unless the port is 0.

    authorities: more of them that vouch for clients, files by name.
    """
    if not settings.port:
        yield
        return
    url = f"https://{join_host_port(settings.bind_address, settings.port)}"
    server = HttpServer([Listener(url, tls=_tls(settings, authorities or {}))], pages.handle)
    await server.start()
    try:
        yield
    finally:
        await server.stop()


def _tls(settings: PageSettings, more: Mapping[str, str]) -> ServerTls:
    own = {CLIENTS: settings.client_ca_file} if settings.client_ca_file else {}
    authorities = {**own, **more}
    return ServerTls(
        _pair(settings),
        client_auth=ClientAuth.REQUEST if authorities else ClientAuth.NONE,
        authorities=authorities,
        min_version=settings.min_version,
        cipher_suites=settings.cipher_suites,
        http2=settings.http2,
    )


def _pair(settings: PageSettings) -> KeyPair:
    """Return the certificate of the pages; a new one if none is given."""
    if settings.cert_file:
        return KeyPair(settings.cert_file, settings.key_file)
    now_s = SystemClock().now_s()
    host = gethostname()
    hosts = (host, "localhost", "127.0.0.1")
    made = issue(new_authority(f"{host}-ca", now_s), Profile(host, hosts=hosts, serves=True), now_s)
    return KeyPair(made.cert, made.key)


def _refuse(answer: Answer, refusal: ApiError) -> None:
    answer.send(refusal.code, _JSON, orjson.dumps(refusal.status) + b"\n")
