"""The client of webhooks against servers that fail in every way."""

import asyncio
import base64
import ssl
from base64 import b64decode
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apiserver.webhooks import faults
from kvstack.apiserver.webhooks.client import Answer, CallError, WebhookClient
from kvstack.apiserver.webhooks.client_config import ClientConfig, read_client_config, service_of
from kvstack.apiserver.webhooks.outbound import Outbound
from kvstack.apiserver.webhooks.services import ENDPOINTS, SERVICES, SLICES, ServiceError, Services
from kvstack.component.clock import SystemClock
from tests.apiserver.policy.views import FakeView
from tests.apiserver.support.hook_server import HookServer
from tests.support.network.tcp_listener import TcpListener

TIMEOUT_S = 10.0


@pytest.fixture(scope="module")
def hooks() -> Iterator[HookServer]:
    with HookServer() as server:
        yield server


def client_config(hooks: HookServer, path: str, host: str = "127.0.0.1") -> ClientConfig:
    return ClientConfig(f"https://{host}:{hooks.port}{path}", b64decode(hooks.ca))


def service(name: str, port: int = 443, **spec: Any) -> Object:
    spec = {"ports": [{"name": "web", "port": port}], **spec}
    return {"metadata": {"name": name, "namespace": "a"}, "spec": spec}


def slice_of(name: str, address: str, port: int, *, ready: bool = True) -> Object:
    return {
        "metadata": {
            "name": f"{name}-{address}",
            "namespace": "a",
            "labels": {"kubernetes.io/service-name": name},
        },
        "ports": [{"name": "web", "port": port}],
        "endpoints": [{"addresses": [address], "conditions": {"ready": ready}}],
    }


def run(main: Callable[[WebhookClient], Awaitable[None]], view: FakeView | None = None) -> None:
    async def body() -> None:
        client = WebhookClient(Services(view or FakeView()), Outbound(SystemClock().unix_ms))
        try:
            await main(client)
        finally:
            await client.close()

    asyncio.run(body())


async def ask(client: WebhookClient, where: ClientConfig, **more: Any) -> Answer:
    body = b'{"request":{"uid":"u"}}'
    return await client.post(where, "?timeout=1s", body, **{"timeout_s": TIMEOUT_S, **more})


async def refusal(client: WebhookClient, where: ClientConfig, **more: Any) -> str:
    with pytest.raises(CallError) as raised:
        await ask(client, where, **more)
    return str(raised.value)


def test_statuses_are_named_as_go_names_them(hooks: HookServer) -> None:
    hooks.answers |= {
        f"/{code}": {"status": code, "text": "boom"} for code in (302, 403, 404, 418, 500, 503)
    }
    hooks.answers["/own"] = {"status": 400, "json": {"kind": "Status", "message": "own words"}}
    hooks.answers["/words"] = {
        "status": 500,
        "text": "boom\n",
        "headers": {"Content-Type": "text/plain"},
    }

    async def main(client: WebhookClient) -> None:
        told = {
            "/302": "the server answered with a redirect (302), which is not followed",
            "/403": "unknown",
            "/404": "the server could not find the requested resource",
            "/418": (
                "the server responded with the status code 418 but did not return more information"
            ),
            "/500": (
                'an error on the server ("unknown") has prevented the request from succeeding'
            ),
            "/503": "the server is currently unable to handle the request",
            "/own": "own words",
            "/words": 'an error on the server ("boom") has prevented the request from succeeding',
        }
        for path, text in told.items():
            assert await refusal(client, client_config(hooks, path)) == text

    run(main)


def test_what_takes_too_long_or_is_too_large_is_given_up() -> None:
    async def hang(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"}}")
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:  # it never ends
            writer.write(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")
            await writer.drain()

    async def main(client: WebhookClient) -> None:
        async with TcpListener(hang) as server:
            url = f"http://{server.endpoint}/slow"
            told = await refusal(client, ClientConfig(url), timeout_s=0.5)
            assert told == f'Post "{url}?timeout=1s": context deadline exceeded'
        async with TcpListener(flood) as server:
            told = await refusal(
                client, ClientConfig(f"http://{server.endpoint}/"), bytes_max=1_000_000
            )
            assert told == "the answer has more than 1000000 bytes"

    run(main)


def test_connections_are_kept_and_replaced() -> None:
    """A server that closes each connection after one answer, without saying so."""
    connections = 0

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await reader.readuntil(b"}}")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        await writer.drain()
        await reader.read(1)  # the next request is not answered

    async def main(client: WebhookClient) -> None:
        async with TcpListener(answer) as server:
            where = ClientConfig(f"http://{server.endpoint}/")
            for _ in range(3):
                assert (await ask(client, where)).body == b"{}"
            assert connections == 3
            await client.close()

    run(main)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (b"", "EOF"),
        (b"garbage\r\n\r\n", "malformed HTTP response"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}", "unexpected EOF"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n{}", "has more than"),
    ],
)
def test_what_is_no_answer_is_an_error(answer: bytes, message: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"}}")
        writer.write(answer)
        await writer.drain()

    async def main(client: WebhookClient) -> None:
        async with TcpListener(serve) as server:
            assert message in await refusal(client, ClientConfig(f"http://{server.endpoint}/"))

    run(main)


def test_whom_is_not_believed_and_why(hooks: HookServer) -> None:
    async def main(client: WebhookClient) -> None:
        stranger = client_config(hooks, "/x")._replace(ca=b"")
        unknown = "tls: failed to verify certificate: x509: certificate signed by unknown authority"
        assert (await refusal(client, stranger)).endswith(unknown)
        named = client_config(hooks, "/x", "localhost")
        assert "not valid for any names, but wanted to match localhost" in await refusal(
            client, named
        )
        closed = ClientConfig(f"https://{hooks.closed_port}/x", b64decode(hooks.ca))
        assert (await refusal(client, closed)).endswith(
            f"dial tcp {hooks.closed_port}: connect: connection refused"
        )
        broken = client_config(hooks, "/x")._replace(ca=b"-----BEGIN nothing")
        assert "unable to load root certificates" in await refusal(client, broken)

    run(main)


def _broken(text: bytes) -> bytes:
    """Return a certificate that is none, in PEM."""
    body = base64.b64encode(text)
    return b"-----BEGIN CERTIFICATE-----\n" + body + b"\n-----END CERTIFICATE-----\n"


def test_a_bundle_with_a_certificate_and_other_things_is_trusted(hooks: HookServer) -> None:
    hooks.answers["/fine"] = {"status": 200, "text": "{}"}
    good = b64decode(hooks.ca)

    async def main(client: WebhookClient) -> None:
        for bundle in (
            "# autorité é\n".encode() + good,
            b"\xff\xfe\n" + good,
            _broken(b"no certificate") + good,
            good + _broken(b"no certificate"),
            good + b"-----BEGIN CERTIFICATE-----\ncut",
        ):
            assert (
                await ask(client, client_config(hooks, "/fine")._replace(ca=bundle))
            ).code == 200

    run(main)


def test_a_bundle_without_any_certificate_is_an_error_of_the_call(hooks: HookServer) -> None:
    der = ssl.PEM_cert_to_DER_cert(b64decode(hooks.ca).decode())
    told = "unable to load root certificates: "
    no_block = f"{told}unable to parse bytes as PEM block"

    async def main(client: WebhookClient) -> None:
        for bundle, text in (
            (der, no_block),
            (b64decode("aaaa"), no_block),
            ("é".encode(), no_block),
            (_broken(b"x"), f"{told}failed to parse certificate: x509: malformed certificate"),
        ):
            assert await refusal(client, client_config(hooks, "/x")._replace(ca=bundle)) == text

    run(main)


def test_a_service_that_goes_between_two_tries_is_no_other_error() -> None:
    error = ssl.SSLCertVerificationError("hostname mismatch")
    error.verify_code = 62
    view = FakeView()  # the Service was there when it was dialled

    async def main() -> None:
        told = await faults.dial_text(error, "hook.a.svc", 443, Services(view))
        assert told == (
            "tls: failed to verify certificate: x509: certificate is not valid for any names, but"
            " wanted to match hook.a.svc"
        )

    asyncio.run(main())


def test_another_bundle_counts_at_once(hooks: HookServer) -> None:
    hooks.answers["/fine"] = {"status": 200, "text": "{}"}

    async def main(client: WebhookClient) -> None:
        assert (await ask(client, client_config(hooks, "/fine"))).code == 200
        with pytest.raises(CallError):
            await ask(client, client_config(hooks, "/fine")._replace(ca=b""))
        assert (await ask(client, client_config(hooks, "/fine"))).code == 200

    run(main)


def test_services_are_reached_at_their_endpoints() -> None:
    view = FakeView()
    services = Services(view)

    def fault(port: int = 443) -> str:
        with pytest.raises(ServiceError) as raised:
            services.endpoints("a", "hook", port)
        return str(raised.value)

    assert fault() == 'service "hook" not found'
    view.put(SERVICES, service("hook"))
    assert fault() == 'no endpoints available for service "hook"'
    assert fault(80) == 'no service port 80 found for service "hook"'
    view.put(SLICES, slice_of("other", "10.0.0.9", 1))
    view.put(SLICES, slice_of("hook", "10.0.0.8", 8443, ready=False))
    assert fault() == 'no endpoints available for service "hook"'
    subset = {"addresses": [{"ip": "10.0.0.6"}], "ports": [{"name": "web", "port": 1}]}
    view.put(ENDPOINTS, {"metadata": {"name": "hook", "namespace": "a"}, "subsets": [subset]})
    assert services.endpoints("a", "hook", 443) == [("10.0.0.6", 1)]
    view.put(SLICES, slice_of("hook", "10.0.0.7", 8443))
    assert services.endpoints("a", "hook", 443) == [("10.0.0.7", 8443)]
    view.put(SERVICES, service("away", type="ExternalName", externalName="e.com"))
    assert services.endpoints("a", "away", 8) == [("e.com", 8)]


def test_a_service_is_dialled_by_its_name_in_the_cluster() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        await reader.readuntil(b"}}")
        host = next(line for line in head.split(b"\r\n") if line.lower().startswith(b"host:"))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(host), host))
        await writer.drain()

    view = FakeView()

    async def main(client: WebhookClient) -> None:
        async with TcpListener(answer) as server:
            view.put(SERVICES, service("hook", 80))
            view.put(SLICES, slice_of("hook", "127.0.0.1", server.port))
            found = await ask(client, ClientConfig("http://hook.a.svc:80/"))
            assert found.body == b"Host: hook.a.svc"
            told = await refusal(client, ClientConfig("http://none.a.svc:80/"))
            assert told == 'Post "http://none.a.svc:80/?timeout=1s": service "none" not found'

    run(main, view)


def test_addresses_of_webhooks() -> None:
    client = {"service": {"namespace": "a", "name": "hook", "path": "v"}, "caBundle": "eA=="}
    assert read_client_config(client) == ClientConfig("https://hook.a.svc:443/v", b"x")
    assert read_client_config({"url": "https://e.com/x"}) == ClientConfig("https://e.com/x")
    assert read_client_config({"url": "https://[::1]:8443"}) == ClientConfig("https://[::1]:8443/")
    with pytest.raises(ValueError, match="either service or URL"):
        read_client_config({})
    assert service_of("hook.a.svc") == ("a", "hook")
    assert service_of("hook.a.b.svc") is None
    assert service_of("e.com") is None


def test_paths_are_asked_for_in_their_shortest_form() -> None:
    # envtest writes an address and a path that begins with a slash with another slash between.
    assert read_client_config({"url": "https://e.com:1//mutate-v1"}) == ClientConfig(
        "https://e.com:1/mutate-v1"
    )
    assert read_client_config({"url": "https://e.com/a/../b/./c/"}) == ClientConfig(
        "https://e.com/b/c"
    )
    assert read_client_config({"url": "https://e.com/a%20b"}) == ClientConfig("https://e.com/a%20b")
    service = {"namespace": "a", "name": "hook", "path": "//v//w/"}
    assert read_client_config({"service": service}) == ClientConfig("https://hook.a.svc:443/v/w")
