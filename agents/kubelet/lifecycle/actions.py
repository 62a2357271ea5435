"""The actions of probes and hooks: a command in a container, a request, a connection.

Each returns an Outcome: `is_good`, None where it could not be found out; and what is said of it.
"""

import asyncio
from collections.abc import Sequence
from functools import cache
from ssl import SSLContext
from string import punctuation
from typing import Final, NamedTuple
from urllib.parse import quote, urljoin, urlsplit

from kvstack.agents.kubelet.runtime.runtime import Container, Runtime, StartError
from kvstack.apimachinery.objects.json_object import Object
from kvstack.component.http.answers import AnswerError
from kvstack.component.http.client import HttpClient
from kvstack.component.http.faults import fault_text
from kvstack.component.http.request_head import UrlError, head_lines, site_of
from kvstack.component.http.tls import client_context

PROBE_AGENT: Final = "kube-probe/1.37"
HOOK_AGENT: Final = "kube-lifecycle/1.37"
_OUTPUT_MAX: Final = 10 << 10
_REDIRECTS_MAX: Final = 10
_HEALTH: Final = "/grpc.health.v1.Health/Check"
_SERVING: Final = 1
_HEALTH_STATES: Final = ("UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN")


class Outcome(NamedTuple):
    """The outcome of an action."""

    is_good: bool | None
    text: str = ""
    warning: str = ""


GOOD: Final = Outcome(is_good=True)


def _bad(text: str) -> Outcome:
    return Outcome(is_good=False, text=text)


async def run_command(
    runtime: Runtime, found: Container, command: Sequence[str], timeout_s: float | None
) -> Outcome:
    """Run a command in a container; timeout_s: None waits for its end."""
    try:
        session = await runtime.exec(found.id, command, tty=False)
    except StartError as error:
        return Outcome(None, error.message)
    output = bytearray()
    try:
        async with asyncio.timeout(timeout_s):
            session.close_input()
            while (piece := await session.read())[0]:
                if len(output) < _OUTPUT_MAX:
                    output += piece[1]
            code = await session.wait()
    except TimeoutError:
        shown = " ".join(command)
        return _bad(f'command timed out: "{shown}" timed out after {timeout_s:g}s')
    except StartError as error:
        return Outcome(None, error.message)
    finally:
        session.close()
    return GOOD if code == 0 else _bad(output[:_OUTPUT_MAX].decode("utf-8", "replace"))


async def request(
    container: Object, get: Object, host: str, timeout_s: float, agent: str
) -> Outcome:
    """Send a GET; codes from 200 to 399 are good."""
    url = url_of(container, get, host)
    headers = {"user-agent": agent, "accept": "*/*", "connection": "close"}
    for each in get.get("httpHeaders") or ():
        name = each["name"].lower()
        if name == "accept" and not each["value"]:
            headers.pop(name, None)
        else:
            headers[name] = each["value"]
    client = HttpClient()
    try:
        async with asyncio.timeout(timeout_s):
            return await _get(client, url, head_lines(headers.items()))
    except TimeoutError:
        late = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
        return _bad(f'Get "{url}": {late}')
    except UrlError as error:
        return _bad(f'Get "{url}": {error}')
    except (AnswerError, OSError) as error:
        site = site_of(_escaped(url))
        return _bad(f'Get "{url}": {fault_text(error, site.host, site.port)}')
    finally:
        client.close()


async def _get(client: HttpClient, url: str, head: str) -> Outcome:
    first = urlsplit(url).hostname
    for _ in range(_REDIRECTS_MAX):
        async with await client.open("GET", _escaped(url), head, context=_any_tls()) as answer:
            code, aim = answer.code, answer.header("location")
            if not (300 <= code < 400 and aim):
                good = 200 <= code < 400
                return GOOD if good else _bad(f"HTTP probe failed with statuscode: {code}")
            body = (await answer.read())[:_OUTPUT_MAX].decode("utf-8", "replace")
        url = urljoin(url, aim)
        if urlsplit(url).hostname != first:
            text = f"Probe terminated redirects, Response body: {body}"
            return Outcome(is_good=True, warning=text)
    return _bad(f'Get "{url}": stopped after {_REDIRECTS_MAX} redirects')


def _escaped(url: str) -> str:
    """Return a URL as it is sent: a path may have any characters."""
    return quote(url, safe=punctuation)


def url_of(container: Object, get: Object, host: str) -> str:
    """Return the URL of an httpGet."""
    name = get.get("host") or host
    shown = f"[{name}]" if ":" in name else name
    path = get.get("path") or "/"
    slash = "" if path.startswith("/") else "/"
    scheme = (get.get("scheme") or "HTTP").lower()
    return f"{scheme}://{shown}:{port_of(container, get['port'])}{slash}{path}"


async def connect(container: Object, socket: Object, host: str, timeout_s: float) -> Outcome:
    """Check that a connection can be opened."""
    name, port = socket.get("host") or host, port_of(container, socket["port"])
    address = f"[{name}]:{port}" if ":" in name else f"{name}:{port}"
    try:
        async with asyncio.timeout(timeout_s):
            _, writer = await asyncio.open_connection(name, port)
    except ConnectionRefusedError:
        return _bad(f"dial tcp {address}: connect: connection refused")
    except TimeoutError:
        return _bad(f"dial tcp {address}: i/o timeout")
    except OSError as error:
        return _bad(f"dial tcp {address}: {error.strerror or error}")
    writer.close()
    return GOOD


async def check_health(action: Object, host: str, timeout_s: float) -> Outcome:
    """Call the health check of a gRPC service."""
    import grpc.aio  # large, and few pods need it

    address = f"{f'[{host}]' if ':' in host else host}:{action['port']}"
    service = (action.get("service") or "").encode()
    question = b"\x0a" + bytes((len(service),)) + service if service else b""
    options = (("grpc.primary_user_agent", PROBE_AGENT), ("grpc.enable_http_proxy", 0))
    async with grpc.aio.insecure_channel(address, options=options) as channel:
        check: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes] = channel.unary_unary(_HEALTH)
        try:
            answer: bytes = await check(question, timeout=timeout_s)
        except grpc.aio.AioRpcError as error:
            return _bad(_health_error(error.code().name, error.details() or "", address, timeout_s))
    state = answer[1] if len(answer) >= 2 and answer[0] == 0x08 else 0
    if state == _SERVING:
        return GOOD
    name = _HEALTH_STATES[state] if state < len(_HEALTH_STATES) else str(state)
    return _bad(f'service unhealthy (responded with "{name}")')


def _health_error(code: str, details: str, address: str, timeout_s: float) -> str:
    if code == "UNIMPLEMENTED":
        return (
            "error: this server does not implement the grpc health protocol "
            f"(grpc.health.v1.Health): {details}"
        )
    if code in ("DEADLINE_EXCEEDED", "UNAVAILABLE"):
        return (
            f'timeout: failed to connect service "{address}" within {timeout_s:g}s: '
            "context deadline exceeded"
        )
    return f"error: health rpc failed: {details}"


def port_of(container: Object, port: int | str) -> int:
    """Return the number of a port, which may be the name of one of the container's."""
    if isinstance(port, int):
        return port
    for each in container.get("ports") or ():
        if each.get("name") == port:
            found: int = each["containerPort"]
            return found
    return int(port) if port.isdecimal() else 0


@cache
def _any_tls() -> SSLContext:
    """Return settings that believe any server: a probe asks whether one answers, not who."""
    return client_context(insecure=True)
