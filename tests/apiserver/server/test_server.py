"""An API server from start to stop, over a store in memory."""

import asyncio
import dataclasses
import json
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apiserver.server.assembly import ApiServer
from kvstack.apiserver.server.health_checks import HOOKS
from kvstack.apiserver.server.settings.options import Options, StoreOptions
from kvstack.component.errors import ComponentError, ConfigError
from kvstack.component.http.serving import native
from kvstack.component.line_log.line_logger import LineLogger
from kvstore.client.values import prefix_end
from tests.apiserver.server.in_process import ISSUER, World, options, run
from tests.support.node.embedded_member import EmbeddedMember

pytestmark = pytest.mark.slow

LEASES = b"/registry/masterleases/"


def test_users_health_and_identity(tmp_path: Path) -> None:
    async def main(world: World) -> None:
        server = await world.start()
        await _check_health(world, server)
        await _check_users(world, server)
        await _check_tokens(world, server)

    run(tmp_path, main)


async def _check_health(world: World, server: ApiServer) -> None:
    lines = (await world.get(server, "/readyz?verbose", token=""))[1].decode().splitlines()
    names = ["ping", "log", "etcd", "etcd-readiness", "informer-sync", *HOOKS]
    assert [each for each in lines if each.startswith("[+]")] == [
        f"[+]{each} ok" for each in [*names, "shutdown"]
    ]
    assert await world.get(server, "/livez", token="") == (200, b"ok")
    assert await world.get(server, "/livez/etcd") == (200, b"ok")
    assert (await world.get(server, "/livez/shutdown"))[0] == 404
    for page in ("/livez", "/healthz"):
        lines = (await world.get(server, f"{page}?verbose", token=""))[1].decode().splitlines()
        names = ["ping", "log", "loopback-serving-certificate", "etcd", *HOOKS]
        assert lines[:-1] == [f"[+]{each} ok" for each in names]


async def _check_users(world: World, server: ApiServer) -> None:
    review = b'{"kind":"SelfSubjectReview","apiVersion":"authentication.k8s.io/v1"}'
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"

    async def whoami(**how: Any) -> tuple[int, Any]:
        status, body = await world.ask(server, "POST", path, body=review, **how)
        info = json.loads(body).get("status")
        return status, info["userInfo"] if isinstance(info, dict) else info

    status, user = await whoami(token="admin-token")
    assert (status, user["username"]) == (201, "admin")
    assert user["groups"] == ["system:masters", "system:authenticated"]
    status, user = await whoami(client="jane", groups=("devs",))
    assert (status, user["username"]) == (201, "jane")
    assert user["groups"] == ["devs", "system:authenticated"]
    assert (await whoami(token="nonsense"))[0] == 401
    assert (await whoami())[0] == 403, "anonymous requests may not review"
    assert (await world.get(server, "/api/v1/secrets", token="bob-token"))[0] == 403
    assert (await world.get(server, "/version", token=""))[0] == 200


async def _check_tokens(world: World, server: ApiServer) -> None:
    base = "/api/v1/namespaces/default/serviceaccounts"
    body = b'{"metadata":{"name":"sa"}}'
    assert (await world.ask(server, "POST", base, body=body, token="admin-token"))[0] == 201
    status, answer = await world.ask(
        server, "POST", f"{base}/sa/token", body=b"{}", token="admin-token"
    )
    assert status == 201, answer
    token = json.loads(answer)["status"]["token"]
    path = "/.well-known/openid-configuration"
    assert (await world.get(server, path, token="bob-token"))[0] == 403
    status, answer = await world.get(server, path, token=token)
    assert (status, json.loads(answer)["issuer"]) == (200, ISSUER)
    assert json.loads(answer)["jwks_uri"] == f"https://{server.address}/openid/v1/jwks"
    keys = json.loads((await world.get(server, "/openid/v1/jwks", token=token))[1])["keys"]
    assert [each["alg"] for each in keys] == ["RS256"]
    status, answer = await world.ask(
        server, "GET", "/openid/v1/jwks", token=token, accept="text/html"
    )
    assert (status, json.loads(answer)["message"]) == (
        406,
        "406: Not Acceptable\n\nAvailable representations: application/jwk-set+json",
    )


def test_pages_about_the_program(tmp_path: Path) -> None:
    async def main(world: World) -> None:
        server = await world.start(options(tmp_path, flags={"secure-port": "7", "a": "[x]"}))
        status, body = await world.get(server, "/flagz")
        assert status == 200
        assert body.startswith(b"\napiserver flagz\nWarning: This endpoint is not meant to be")
        assert body.endswith(b"\na [x]\nsecure-port 7\n")
        accept = "application/json;g=config.k8s.io;v=v1beta1;as=Flagz"
        status, body = await world.ask(server, "GET", "/flagz", token="admin-token", accept=accept)
        assert json.loads(body) == {
            "kind": "Flagz",
            "apiVersion": "config.k8s.io/v1beta1",
            "metadata": {"name": "apiserver"},
            "flags": {"secure-port": "7", "a": "[x]"},
        }
        status, body = await world.ask(
            server, "GET", "/statusz", token="admin-token", accept="application/json"
        )
        assert (status, json.loads(body)["reason"]) == (406, "NotAcceptable")
        status, body = await world.get(server, "/statusz")
        assert b"\nBinary version:  1.37.1\n" in body
        assert (await world.get(server, "/flagz", token="bob-token"))[0] == 403
        await world.get(server, "/readyz")
        status, body = await world.get(server, "/metrics/slis")
        assert b'kubernetes_healthcheck{name="etcd",type="readyz"} 1\n' in body
        line = b'kubernetes_healthchecks_total{name="etcd",status="success",type="readyz"} 1\n'
        assert line in body

    run(tmp_path, main)


def test_a_server_without_the_crate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "is_available", lambda: False)

    async def main(world: World) -> None:
        server = await world.start()
        await _check_users(world, server)

    run(tmp_path, main)


def test_two_servers_share_a_store_and_the_last_one_stays_registered(tmp_path: Path) -> None:
    async def main(world: World) -> None:
        first, second = await world.start(), await world.start(_at(tmp_path, "192.0.2.8"))
        body = b'{"metadata":{"name":"seen"}}'
        path = "/api/v1/namespaces/default/configmaps"
        assert (await world.ask(first, "POST", path, body=body, token="admin-token"))[0] == 201
        assert (await world.get(second, f"{path}/seen"))[0] == 200
        assert await _members(world) == ["192.0.2.7", "192.0.2.8"]
        assert await _addresses(world, first) == ["192.0.2.7", "192.0.2.8"]
        await second.stop()
        assert await _members(world) == ["192.0.2.7"]
        assert await _addresses(world, first) == ["192.0.2.7"]
        await first.stop()
        assert await _members(world) == []
        third = ApiServer(world.store, _without_upkeep(tmp_path), LineLogger([], "fatal"))
        await third.start()
        assert await _addresses(world, third) == ["192.0.2.7"]
        await third.stop()

    run(tmp_path, main)


def _at(directory: Path, address: str) -> Options:
    made = options(directory)
    serving = dataclasses.replace(made.serving, advertise_address=address)
    return dataclasses.replace(made, serving=serving)


def _at_port(directory: Path, port: int) -> Options:
    made = options(directory)
    return dataclasses.replace(made, serving=dataclasses.replace(made.serving, port=port))


def _without_upkeep(directory: Path) -> Options:
    return options(directory, keeps_endpoints=False)


async def _members(world: World) -> list[str]:
    found = await world.store.range(LEASES, prefix_end(LEASES), keys_only=True)
    return [each.key[len(LEASES) :].decode() for each in found.kvs]


async def _addresses(world: World, server: ApiServer) -> list[str]:
    obj = await world.object(server, "/api/v1/namespaces/default/endpoints/kubernetes")
    return [each["ip"] for each in obj["subsets"][0]["addresses"]]


def test_a_restart_writes_nothing_that_is_right_already(tmp_path: Path) -> None:
    async def main(world: World) -> None:
        first = await world.start()
        for job in first.jobs:
            if not job.begins_later:
                await job.done.wait()
        await first.stop()
        before = await _versions(world)
        second = await world.start(_at_port(tmp_path, first.port))
        for job in second.jobs:
            if not job.begins_later:
                await job.done.wait()
        after = await _versions(world)
        changed = {key for key in before | after if before.get(key) != after.get(key)}
        assert {each.rpartition("/")[0] for each in changed} == {
            "/registry/leases/kube-system",
            "/registry/masterleases",
        }

    run(tmp_path, main)


async def _versions(world: World) -> dict[str, int]:
    found = await world.store.range(b"/registry/", prefix_end(b"/registry/"))
    return {each.key.decode(): each.mod_revision for each in found.kvs}


@pytest.mark.parametrize("grace_s", [0.0, 0.02])
def test_a_stop_ends_watches_and_answers_what_was_asked(tmp_path: Path, grace_s: float) -> None:
    async def main(world: World) -> None:
        made = options(tmp_path)
        serving = dataclasses.replace(made.serving, watch_grace_s=grace_s)
        server = await world.start(dataclasses.replace(made, serving=serving))
        path = "/api/v1/namespaces/default/configmaps?watch=1"
        watch = asyncio.create_task(world.get(server, path))
        while server.site.watches.count == 0:  # until it has begun
            assert (await world.get(server, "/livez"))[0] == 200
        await server.stop()
        assert (await watch)[0] == 200
        await asyncio.wait_for(server.serve(), 10)

    run(tmp_path, main)


def test_a_store_that_does_not_answer_ends_the_start(tmp_path: Path) -> None:
    from kvstore.client import connect

    async def body() -> None:
        given = options(tmp_path, store=StoreOptions(start_timeout_s=0.2))
        async with connect(["http://127.0.0.1:1"]) as store:
            server = ApiServer(store, given, LineLogger([], "fatal"))
            with pytest.raises(ComponentError, match=r"the store did not answer within 0\.2 s"):
                await server.start()

    asyncio.run(body())


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (
            {"enabled_plugins": ("ImagePolicyWebhook",)},
            "ImagePolicyWebhook: no config specified",
        ),
        ({"runtime_config": {"foo/v1": "true"}}, "unknown api groups foo/v1"),
    ],
)
def test_what_cannot_be_served_is_reported(tmp_path: Path, changes: Any, text: str) -> None:
    async def main(world: World) -> None:
        with pytest.raises(ConfigError, match=text):
            ApiServer(world.store, options(tmp_path, **changes), LineLogger([], "fatal"))

    run(tmp_path, main)


def test_every_request_is_somebodys_where_all_are_allowed(tmp_path: Path) -> None:
    async def main(world: World) -> None:
        server = await world.start(options(tmp_path, authorization_modes=("AlwaysAllow",)))
        assert (await world.get(server, "/api/v1/secrets", token=""))[0] == 401
        assert (await world.get(server, "/api/v1/secrets", token="bob-token"))[0] == 200
        roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
        assert (await world.object(server, roles))["items"] == []

    run(tmp_path, main)


def test_a_store_that_stalls_fails_the_checks_until_it_is_back(tmp_path: Path) -> None:
    async def body() -> None:
        store_options = StoreOptions(health_timeout_s=0.2, ready_timeout_s=0.2)
        with EmbeddedMember() as member:
            async with member.store() as store, AsyncExitStack() as stack:
                world = World(tmp_path, store, stack)
                server = await world.start(options(tmp_path, store=store_options))
                member.stall()
                try:
                    status, answer = await world.get(server, "/readyz?verbose")
                    assert status == 500
                    assert b"[-]etcd failed: reason withheld\n" in answer
                    assert (await world.get(server, "/livez/ping")) == (200, b"ok")
                finally:
                    member.go_on()
                while (await world.get(server, "/readyz"))[0] != 200:
                    pass  # it has 0.2 s for an answer, and may be late on a busy machine

    asyncio.run(body())


def test_a_server_that_does_not_listen(tmp_path: Path) -> None:
    async def main(world: World) -> None:
        made = options(tmp_path)
        serving = dataclasses.replace(made.serving, listens=False, port=6443)
        server = await world.start(dataclasses.replace(made, serving=serving))
        assert server.urls == []
        maps = GroupResource("", "configmaps")
        metadata = {"name": "a", "namespace": "default"}
        await server.loopback.create(maps, {"metadata": metadata, "data": {"x": "1"}})
        await server.registry.live.catch_up()
        found = server.loopback.get(maps, "default", "a")
        assert found is not None
        assert found["data"] == {"x": "1"}
        await server.stop()
        await server.stop()
        assert not (tmp_path / "apiserver.crt").exists()

    run(tmp_path, main)


def test_a_server_without_tls(tmp_path: Path) -> None:
    async def main(world: World) -> None:
        made = options(tmp_path)
        serving = dataclasses.replace(made.serving, is_plain=True)
        server = await world.start(dataclasses.replace(made, serving=serving))
        assert server.urls == [f"http://127.0.0.1:{server.port}"]
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(b"GET /readyz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        assert (await reader.read()).endswith(b"\r\n\r\nok")
        writer.close()

    run(tmp_path, main)
