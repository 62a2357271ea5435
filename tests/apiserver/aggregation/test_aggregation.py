"""An API server behind this one: registered, looked at, asked, and gone again."""

import asyncio
import dataclasses
import json
import ssl
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, web

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apiserver.aggregation.backend import ProxyCertificate
from kvstack.apiserver.server.assembly import ApiServer
from kvstack.apiserver.webhooks.services import SLICES
from tests.apiserver.server.in_process import World, options, run
from tests.support.certificates import Authority
from tests.support.waiting import answered

pytestmark = pytest.mark.slow


SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
NAME = "v1.agg.io"
WAIT_S = 60.0
STEP_S = 0.02
RESOURCES = [
    {
        "name": "things",
        "singularName": "thing",
        "namespaced": True,
        "kind": "Thing",
        "verbs": ["get", "list", "watch"],
    },
    {"name": "things/log", "singularName": "", "namespaced": True, "kind": "Log", "verbs": ["get"]},
]


OPENAPI_V2 = {
    "paths": {
        "/apis/agg.io/v1/things": {"get": {"schema": {"$ref": "#/definitions/Thing"}}},
        "/apis/other.io/v1/things": {"get": {"schema": {"$ref": "#/definitions/Other"}}},
    },
    "definitions": {"Thing": {"type": "object"}, "Other": {"type": "object"}},
}


class Backend:
    """The other server: tells what it was asked, and with which headers."""

    def __init__(self, directory: Path) -> None:
        self.authority = Authority(directory, "agg-ca")
        self.proxies = Authority(directory, "proxy-ca")
        self.files = self.authority.issue("agg", host="agg.default.svc")
        self.port = 0
        self.is_broken = False

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self.files)
        context.load_verify_locations(self.proxies.file)
        context.verify_mode = ssl.CERT_REQUIRED
        app = web.Application()
        app.router.add_get("/openapi/v2", self._openapi_v2)
        app.router.add_get("/openapi/v3", self._openapi)
        app.router.add_get("/openapi/v3/apis/agg.io/v1", self._document)
        app.router.add_get("/apis/agg.io/v1", self._resources)
        app.router.add_get("/apis/agg.io/v1/events", self._watch)
        app.router.add_get("/apis/agg.io/v1/socket", self._socket)
        app.router.add_get("/apis/agg.io/v1/away", self._away)
        app.router.add_route("*", "/apis/agg.io/v1/{rest:.*}", self._echo)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
        await site.start()
        self.port = runner.addresses[0][1]
        try:
            yield
        finally:
            await runner.cleanup()

    async def _openapi_v2(self, _request: web.Request) -> web.Response:
        return web.json_response(OPENAPI_V2)

    async def _openapi(self, _request: web.Request) -> web.Response:
        url = "/openapi/v3/apis/agg.io/v1?hash=ABC"
        return web.json_response({"paths": {"apis/agg.io/v1": {"serverRelativeURL": url}}})

    async def _document(self, _request: web.Request) -> web.Response:
        return web.json_response({"openapi": "3.0.0"})

    async def _resources(self, _request: web.Request) -> web.Response:
        if self.is_broken:
            return web.Response(status=500)
        return web.json_response(
            {"kind": "APIResourceList", "groupVersion": "agg.io/v1", "resources": RESOURCES}
        )

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"Content-Type": "application/json"})
        await answer.prepare(request)
        for number in range(3):
            await answer.write(json.dumps({"type": "ADDED", "object": number}).encode() + b"\n")
        return answer

    async def _socket(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        async for message in socket:
            await socket.send_str(f"{request.headers['X-Remote-User']}: {message.data}")
            await socket.close()
        return socket

    async def _away(self, _request: web.Request) -> web.Response:
        return web.Response(status=302, headers={"Location": "https://example.com/"})

    async def _echo(self, request: web.Request) -> web.Response:
        told = {
            "method": request.method,
            "path": request.raw_path,
            "body": (await request.read()).decode(),
            "headers": [[name.lower(), value] for name, value in request.headers.items()],
        }
        return web.json_response(told, status=418, headers={"X-Own": "yes"})


async def ask(
    world: World, server: ApiServer, method: str, path: str, obj: Any = None, **more: Any
) -> Any:
    body = b"" if obj is None else json.dumps(obj).encode()
    token = more.pop("token", "admin-token")
    status, answer = await world.ask(server, method, path, body=body, token=token, **more)
    return status, json.loads(answer) if answer.startswith(b"{") else answer


async def condition(world: World, server: ApiServer, reason: str, name: str = NAME) -> Object:
    """Return the condition once it has a reason."""

    async def read() -> Object | None:
        _, found = await ask(world, server, "GET", f"{SERVICES}/{name}")
        conditions = found["status"].get("conditions") or ()
        return next((dict(each) for each in conditions if each["reason"] == reason), None)

    return await answered(read, within_s=WAIT_S)


def api_service(ca: str) -> Object:
    return {
        "metadata": {"name": NAME},
        "spec": {
            "group": "agg.io",
            "version": "v1",
            "groupPriorityMinimum": 2000,
            "versionPriority": 10,
            "service": {"namespace": "default", "name": "agg"},
            "caBundle": b64encode(Path(ca).read_bytes()).decode(),
        },
    }


async def started(world: World, backend: Backend) -> ApiServer:
    files = backend.proxies.issue("proxy", host="")
    given = options(world.directory, proxy_certificate=ProxyCertificate(*files))
    return await world.start(dataclasses.replace(given))


async def register(world: World, server: ApiServer, backend: Backend) -> None:
    """Add the APIService, the Service and its endpoints, one after the other."""
    status, answer = await ask(world, server, "POST", SERVICES, api_service(backend.authority.file))
    assert status == 201, answer
    found = await condition(world, server, "ServiceNotFound")
    assert found["message"] == 'service/agg in "default" is not present'
    status, body = await ask(world, server, "GET", "/apis/agg.io/v1/things")
    assert (status, body) == (503, b"service unavailable\n")
    service = {"metadata": {"name": "agg"}, "spec": {"ports": [{"port": 443}]}}
    status, answer = await ask(
        world, server, "POST", "/api/v1/namespaces/default/services", service
    )
    assert status == 201, answer
    found = await condition(world, server, "EndpointsNotFound")
    assert found["status"] == "False"
    # Past validation, which lets no address of this machine through.
    await server.registry.live.create(
        SLICES,
        {
            "kind": "EndpointSlice",
            "apiVersion": "discovery.k8s.io/v1",
            "metadata": {
                "name": "agg-1",
                "namespace": "default",
                "labels": {"kubernetes.io/service-name": "agg"},
            },
            "addressType": "IPv4",
            "endpoints": [{"addresses": ["127.0.0.1"]}],
            "ports": [{"name": "", "port": backend.port, "protocol": "TCP"}],
        },
    )
    found = await condition(world, server, "Passed")
    assert (found["status"], found["message"]) == ("True", "all checks passed")


def test_what_this_server_serves_is_always_available(tmp_path: Path) -> None:
    async def main(world: World) -> None:
        server = await world.start(options(world.directory))
        name = "v1.own.io"
        spec = {"group": "own.io", "version": "v1", "groupPriorityMinimum": 1, "versionPriority": 1}
        own = {"metadata": {"name": name}, "spec": spec}
        status, made = await ask(world, server, "POST", SERVICES, own)
        assert status == 201, made
        for conditions in ([], [{"type": "Available", "status": "False", "reason": "x"}]):
            _, stored = await ask(world, server, "GET", f"{SERVICES}/{name}")
            changed = {**stored, "status": {"conditions": conditions}}
            status, told = await ask(world, server, "PUT", f"{SERVICES}/{name}/status", changed)
            assert status == 200, told
            assert all(each["status"] == "False" for each in told["status"].get("conditions", ()))
            found = await condition(world, server, "Local", name)
            assert (found["status"], found["message"]) == (
                "True",
                "Local APIServices are always available",
            )

    run(tmp_path, main)


def test_what_another_server_serves(tmp_path: Path) -> None:
    async def main(world: World) -> None:
        backend = Backend(tmp_path)
        async with backend.serving():
            server = await started(world, backend)
            await register(world, server, backend)
            await _check_requests(world, server)
            await _check_documents(world, server)
            backend.is_broken = True
            server.aggregator.look_again()
            found = await condition(world, server, "FailedDiscoveryCheck")
            assert f"bad status from https://127.0.0.1:{backend.port}" in found["message"]
            status, body = await ask(world, server, "GET", "/apis/agg.io/v1/things")
            assert (status, body) == (503, b"service unavailable\n")
            _, page = await ask(world, server, "GET", "/metrics")
            assert f'aggregator_unavailable_apiservice{{name="{NAME}"}} 1'.encode() in page
            told = f'aggregator_unavailable_apiservice_total{{name="{NAME}",'
            assert f'{told}reason="FailedDiscoveryCheck"}}'.encode() in page
            status, _ = await ask(world, server, "DELETE", f"{SERVICES}/{NAME}")
            assert status == 200
            await asyncio.wait_for(_gone(world, server), WAIT_S)

    run(tmp_path, main)


async def _gone(world: World, server: ApiServer) -> None:
    async def is_gone() -> bool:
        return (await ask(world, server, "GET", "/apis/agg.io/v1/things"))[0] == 404

    await answered(is_gone, within_s=WAIT_S)


async def _check_requests(world: World, server: ApiServer) -> None:
    path = "/apis/agg.io/v1/namespaces/a/things/x?q=%20y"
    status, told = await ask(world, server, "POST", path, {"a": 1})
    assert status == 418
    assert (told["method"], told["path"], told["body"]) == ("POST", path, '{"a": 1}')
    headers = dict(told["headers"])
    assert headers["x-remote-user"] == "admin"
    groups = [value for name, value in told["headers"] if name == "x-remote-group"]
    assert groups == ["system:masters", "system:authenticated"]
    assert headers["x-forwarded-for"] == "127.0.0.1"
    assert "authorization" not in headers
    status, refused = await ask(world, server, "GET", path, token="bob-token")
    assert (status, refused["reason"]) == (403, "Forbidden")
    status, body = await world.get(server, "/apis/agg.io/v1/events")
    assert [json.loads(line)["object"] for line in body.splitlines()] == [0, 1, 2]
    assert (await ask(world, server, "GET", "/apis/agg.io/v1/away"))[0] == 502
    await _check_socket(server)
    assert (await ask(world, server, "GET", "/apis/agg.io/v1/../../x/v1"))[0] == 404


async def _check_socket(server: ApiServer) -> None:
    url = f"wss://127.0.0.1:{server.port}/apis/agg.io/v1/socket"
    headers = {"Authorization": "Bearer admin-token"}
    async with (
        ClientSession() as session,
        session.ws_connect(url, headers=headers, ssl=False) as socket,
    ):
        await socket.send_str("hello")
        assert (await socket.receive()).data == "admin: hello"


async def _check_documents(world: World, server: ApiServer) -> None:
    async def documents() -> tuple[Any, Any] | None:
        _, groups = await ask(world, server, "GET", "/apis")
        _, index = await ask(world, server, "GET", "/openapi/v3")
        is_named = any(each["name"] == "agg.io" for each in groups["groups"])
        return (groups, index) if is_named and "apis/agg.io/v1" in index["paths"] else None

    groups, index = await answered(documents, within_s=WAIT_S)
    names = [each["name"] for each in groups["groups"]]
    assert names[0] == "apiregistration.k8s.io"
    assert (await ask(world, server, "GET", "/apis/agg.io"))[1]["versions"] == [
        {"groupVersion": "agg.io/v1", "version": "v1"}
    ]
    accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
    _, found = await ask(world, server, "GET", "/apis", accept=accept)
    [own] = [each for each in found["items"] if each["metadata"]["name"] == "agg.io"]
    [version] = own["versions"]
    assert (version["freshness"], version["resources"][0]["resource"]) == ("Current", "things")
    assert version["resources"][0]["subresources"][0]["subresource"] == "log"
    url = index["paths"]["apis/agg.io/v1"]["serverRelativeURL"]
    assert url == "/openapi/v3/apis/agg.io/v1?hash=ABC"
    assert (await ask(world, server, "GET", url))[1] == {"openapi": "3.0.0"}
    _, old = await ask(world, server, "GET", "/openapi/v2")
    assert "/apis/agg.io/v1/things" in old["paths"]
    assert "/apis/other.io/v1/things" not in old["paths"]
    assert old["definitions"]["Thing"] == {"type": "object"}
