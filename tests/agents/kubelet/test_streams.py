"""Logs and commands through an API server, to a node that runs processes. It needs root."""

import asyncio
import dataclasses
import json
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import urlopen

import aiohttp
import pytest
from typing_extensions import override

from kvstack.agents.client.built_in import NODES, PODS, SERVICE_ACCOUNTS
from kvstack.agents.kubelet.configuration import read_configuration, whole
from kvstack.agents.kubelet.real_node import RealNode, RealNodeOptions
from kvstack.agents.kubelet.server.log_stream import selection_of
from kvstack.apimachinery.attributes import User
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apiserver.server.settings.options import Options
from kvstack.apiserver.streams.kubelet_tls import KubeletTls
from kvstack.component.certs.cert_files import CertFiles
from kvstack.component.certs.certificates import Profile
from kvstack.component.http.dialling import dial
from kvstack.component.http.request_head import head_lines
from kvstack.component.http.single import ask_on
from kvstack.component.streams.spdy.frames import Codec
from kvstack.component.streams.spdy.session import Session, Stream
from tests.agents.kubelet.test_kubelet import pod, pytestmark, reach
from tests.agents.support.cluster import TestCluster, eventually
from tests.support.network.tcp_listener import TcpListener

__all__ = ["pytestmark"]


class StreamCluster(TestCluster):
    """A cluster whose API server has a certificate for kubelets."""

    __test__ = False

    def __init__(self, directory: Path, groups: tuple[str, ...]) -> None:
        super().__init__(directory)
        self.files = CertFiles(directory)
        now_s = self.clock.now_s()
        self.files.authority("ca", "kubernetes", now_s)
        self.files.pair("client", "ca", Profile("apiserver", groups=groups), now_s)

    @override
    def _options(self) -> Options:
        tls = KubeletTls(str(self.files.cert("client")), str(self.files.key_file("client")))
        return dataclasses.replace(
            super()._options(),
            kubelets=tls,
            kubelet_addresses=("InternalIP",),
            authorization_modes=("Node", "RBAC"),
            enabled_plugins=("NodeRestriction",),
        )


def run(
    directory: Path,
    story: Callable[[StreamCluster], Coroutine[Any, Any, None]],
    groups: tuple[str, ...] = ("system:masters",),
    configuration: dict[str, Any] | None = None,
) -> None:
    async def main() -> None:
        async with StreamCluster(directory, groups) as cluster:
            admin = cluster.admin
            await admin.create(SERVICE_ACCOUNTS, "default", {"metadata": {"name": "default"}})
            options = RealNodeOptions(
                "node-a",
                str(cluster.files.cert("ca")),
                port=0,
                root=directory / "node",
                has_host_image=True,
                configuration=configuration or {},
            )
            api = cluster.api("system:node:node-a", "system:nodes")
            node = RealNode(api, cluster.clock, lambda: 0.5, cluster.log, options)
            await node.start()
            try:
                await story(cluster)
            finally:
                await node.stop()
            assert not cluster.log.of("error")

    asyncio.run(main())


async def log(cluster: TestCluster, name: str, query: str = "") -> bytes:
    path = f"/api/v1/namespaces/default/pods/{name}/log{query}"
    response = await cluster.admin.open("GET", path)
    return await response.read()


def test_logs(tmp_path: Path) -> None:
    async def story(cluster: StreamCluster) -> None:
        script = "echo one; echo two; sleep 0.3; echo three"
        await cluster.admin.create(PODS, "default", pod("job", script))
        await reach(cluster, "job", "Running")
        assert await log(cluster, "job", "?follow=true") == b"one\ntwo\nthree\n"
        await reach(cluster, "job", "Succeeded")
        assert await log(cluster, "job", "?tailLines=1") == b"three\n"
        stamped = await log(cluster, "job", "?timestamps=true&tailLines=1")
        assert stamped.endswith(b"Z three\n")
        for query, code, text in (
            ("?container=x", 400, "container x is not valid for pod job"),
            ("?previous=true", 400, 'previous terminated container "c" in pod "job" not found'),
        ):
            with pytest.raises(ApiError) as caught:
                await log(cluster, "job", query)
            assert (caught.value.code, caught.value.message) == (code, text)
        unbound = pod("unbound", "true")
        del unbound["spec"]["nodeName"]
        await cluster.admin.create(PODS, "default", unbound)
        assert await log(cluster, "unbound") == b""

    run(tmp_path, story)


def test_the_log_of_a_container_that_waits_to_be_started_again(tmp_path: Path) -> None:
    async def story(cluster: StreamCluster) -> None:
        crash = pod("job", "echo about to crash; exit 3")
        crash["spec"]["restartPolicy"] = "Always"
        await cluster.admin.create(PODS, "default", crash)
        informer = cluster.informers.of(PODS)

        def waits() -> bool:
            status = (informer.store.get("default/job") or {}).get("status") or {}
            return any(
                "waiting" in each["state"] and "terminated" in each.get("lastState", {})
                for each in status.get("containerStatuses") or ()
            )

        await eventually(waits)
        assert await log(cluster, "job", "?previous=true") == b"about to crash\n"

    run(tmp_path, story)


async def command(
    cluster: TestCluster, query: str, stdin: bytes | None = None
) -> tuple[dict[int, bytes], int | None]:
    """Run a command in the pod web; return what came on each channel, and the code of the end."""
    base = cluster.server.urls[0]
    token = cluster.server.local.token_for(User("admin", groups=("system:masters",)))
    found: dict[int, bytes] = {}
    async with aiohttp.ClientSession() as session:
        socket = await session.ws_connect(
            f"{base}/api/v1/namespaces/default/pods/web/exec?{query}",
            protocols=["v5.channel.k8s.io"],
            headers={"Authorization": f"Bearer {token}"},
        )
        assert socket.protocol == "v5.channel.k8s.io"
        if stdin is not None:
            await socket.send_bytes(b"\x00" + stdin)
            await socket.send_bytes(b"\xff\x00")
        async for message in socket:
            found[message.data[0]] = found.get(message.data[0], b"") + message.data[1:]
        return found, socket.close_code


def test_commands(tmp_path: Path) -> None:
    async def story(cluster: StreamCluster) -> None:
        script = "while :; do sleep 0.1; done"
        await cluster.admin.create(PODS, "default", pod("web", script, policy="Always"))
        await reach(cluster, "web", "Running")
        both = "stdout=true&stderr=true"
        found, code = await command(
            cluster, f"{both}&command=sh&command=-c&command=hostname%0Aecho+no+>%262%0Aexit+3"
        )
        assert code == 1000
        assert found[1] == b"web\n"
        assert found[2] == b"no\n"
        status = json.loads(found[3])
        assert status["reason"] == "NonZeroExitCode"
        assert status["details"]["causes"] == [{"reason": "ExitCode", "message": "3"}]
        found, code = await command(cluster, "stdin=true&stdout=true&command=cat", b"x" * 100_000)
        assert found[1] == b"x" * 100_000
        assert json.loads(found[3])["status"] == "Success"
        found, _ = await command(cluster, "stdout=true&tty=true&command=echo&command=hi")
        assert found[1] == b"hi\r\n"

    run(tmp_path, story)


def test_who_may_not_ask_the_kubelet_is_refused(tmp_path: Path) -> None:
    async def story(cluster: StreamCluster) -> None:
        await cluster.admin.create(PODS, "default", pod("job", "echo secret"))
        await reach(cluster, "job", "Succeeded")
        with pytest.raises(ApiError) as caught:
            await log(cluster, "job")
        assert caught.value.code == 403
        assert "Forbidden (user=apiserver, verb=get, resource=nodes" in caught.value.message

    run(tmp_path, story, groups=("nobodies",))


def test_a_kubelet_that_is_not_there(tmp_path: Path) -> None:
    async def story(cluster: StreamCluster) -> None:
        node = {
            "metadata": {"name": "dead"},
            "status": {
                "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
                "daemonEndpoints": {"kubeletEndpoint": {"Port": 1}},
            },
        }
        await cluster.admin.create(NODES, "", node)
        obj = pod("far", "true")
        obj["spec"]["nodeName"] = "dead"
        await cluster.admin.create(PODS, "default", obj)
        await eventually(lambda: cluster.informers.of(PODS).store.get("default/far"))
        with pytest.raises(ApiError) as caught:
            await log(cluster, "far")
        assert caught.value.code == 500
        assert "dial tcp 127.0.0.1:1: connect: connection refused" in caught.value.message

    run(tmp_path, story)


async def open_spdy(cluster: TestCluster, path: str, protocol: str) -> Session:
    """Upgrade a connection to the API server to SPDY/3.1, as older clients do."""
    base = urlsplit(cluster.server.urls[0])
    token = cluster.server.local.token_for(User("admin", groups=("system:masters",)))
    lines = head_lines(
        (
            ("Authorization", f"Bearer {token}"),
            ("Connection", "Upgrade"),
            ("Upgrade", "SPDY/3.1"),
            ("X-Stream-Protocol-Version", protocol),
        )
    )
    sock = await dial([(base.hostname or "", base.port or 0)])
    target = f"/api/v1/namespaces/default/pods/{path}"
    answer = await ask_on(sock, "POST", target, base.netloc, lines, is_upgrade=True)
    assert answer.is_upgraded
    assert answer.header("x-stream-protocol-version") == protocol
    return Session(answer, is_client=True)


async def all_of(stream: Stream) -> bytes:
    return b"".join([piece async for piece in pieces_of(stream)])


async def pieces_of(stream: Stream) -> AsyncIterator[bytes]:
    while piece := await stream.read():
        yield piece


def test_streams_of_spdy(tmp_path: Path) -> None:
    async def story(cluster: StreamCluster) -> None:
        async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"got " + await reader.read())

        async with TcpListener(echo) as server:
            port = str(server.port)
            obj = pod("web", "while read line; do echo got $line; done", policy="Always")
            obj["spec"]["containers"][0] |= {"stdin": True}
            obj["spec"]["hostNetwork"] = True  # where the ports are
            await cluster.admin.create(PODS, "default", obj)
            await reach(cluster, "web", "Running")

            # A command, with its input and its end.
            query = "exec?stdin=true&stdout=true&command=sh&command=-c&command=cat%3B+exit+3"
            session = await open_spdy(cluster, f"web/{query}", "v4.channel.k8s.io")
            streams = {
                name: await session.open({"streamtype": name})
                for name in ("error", "stdin", "stdout")
            }
            await streams["stdin"].write(b"through")
            await streams["stdin"].finish()
            assert await all_of(streams["stdout"]) == b"through"
            status = json.loads(await all_of(streams["error"]))
            assert status["details"]["causes"] == [{"reason": "ExitCode", "message": "3"}]
            await session.close()

            # The first process itself.
            query = "attach?stdin=true&stdout=true&stderr=true"
            session = await open_spdy(cluster, f"web/{query}", "v4.channel.k8s.io")
            for name in ("error", "stdin", "stdout", "stderr"):
                streams[name] = await session.open({"streamtype": name})
            await streams["stdin"].write(b"line\n")
            assert await streams["stdout"].read() == b"got line\n"
            await session.close()

            # Ports: one that answers, one that nobody listens on.
            session = await open_spdy(cluster, "web/portforward", "portforward.k8s.io")
            for number, wanted in (("0", port), ("1", "1")):
                headers = {"port": wanted, "requestid": number}
                errors = await session.open({**headers, "streamtype": "error"})
                await errors.finish()
                data = await session.open({**headers, "streamtype": "data"})
                if number == "0":
                    await data.write(b"hello")
                    await data.finish()
                    assert await all_of(data) == b"got hello"
                    assert await all_of(errors) == b""
                else:
                    text = (await all_of(errors)).decode()
                    assert text.startswith("error forwarding port 1 to pod web, uid : ")
                    assert "127.0.0.1:1: connect: connection refused" in text
            await session.close()

    run(tmp_path, story)


def test_ports_over_web_sockets(tmp_path: Path) -> None:
    async def story(cluster: StreamCluster) -> None:
        async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while piece := await reader.read(100):
                writer.write(b"got " + piece)

        async with TcpListener(echo) as server:
            port = server.port
            obj = pod("web", "sleep 1000", policy="Always")
            obj["spec"]["hostNetwork"] = True  # where the ports are
            await cluster.admin.create(PODS, "default", obj)
            await reach(cluster, "web", "Running")
            base = f"{cluster.server.urls[0]}/api/v1/namespaces/default/pods/web/portforward"
            token = cluster.server.local.token_for(User("admin", groups=("system:masters",)))
            async with aiohttp.ClientSession(
                headers={"Authorization": f"Bearer {token}"}
            ) as session:
                url = f"{base}?ports={port}"
                async with session.ws_connect(url, protocols=["v4.channel.k8s.io"]) as socket:
                    told = port.to_bytes(2, "little")
                    assert await socket.receive_bytes() == b"\0" + told
                    assert await socket.receive_bytes() == b"\1" + told
                    await socket.send_bytes(b"\0hello")
                    assert await socket.receive_bytes() == b"\0got hello"
                wanted = "SPDY/3.1+portforward.k8s.io"
                async with session.ws_connect(base, protocols=[wanted]) as socket:
                    assert socket.protocol == wanted
                    codec = Codec(is_client=True)
                    headers = {"port": str(port), "requestid": "0"}
                    sent = b"".join(
                        codec.syn_stream({**headers, "streamtype": name})[1]
                        for name in ("error", "data")
                    )
                    await socket.send_bytes(sent[:7])
                    await socket.send_bytes(sent[7:])
                    replies = [
                        frame.id
                        for _ in range(2)
                        for frame in codec.receive(await socket.receive_bytes())
                    ]
                    assert replies == [1, 3]
                    await socket.send_bytes(codec.data(3, b"hello"))
                    (found,) = codec.receive(await socket.receive_bytes())
                    assert (found.id, found.data) == (3, b"got hello")

    run(tmp_path, story)


async def page_of(cluster: StreamCluster, path: str) -> bytes:
    """Return a page of the node's own server; raises HTTPError."""
    found = await cluster.admin.get(NODES, "", "node-a")
    port = found["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"]
    trust = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
    trust.load_cert_chain(cluster.files.cert("client"), cluster.files.key_file("client"))

    def read() -> bytes:
        with urlopen(f"https://127.0.0.1:{port}/{path}", context=trust) as answer:
            found: bytes = answer.read()
            return found

    return await asyncio.to_thread(read)


def test_what_a_node_tells_of_itself(tmp_path: Path) -> None:
    async def story(cluster: StreamCluster) -> None:
        await cluster.admin.create(PODS, "default", pod("web", "sleep 1000", policy="Always"))
        await reach(cluster, "web", "Running")

        async def page(path: str) -> bytes:
            return await page_of(cluster, path)

        assert await page("healthz") == b"ok"
        summary = json.loads(await page("stats/summary"))
        assert summary["node"]["nodeName"] == "node-a"
        assert summary["node"]["memory"]["workingSetBytes"] > 0
        assert [each["podRef"]["name"] for each in summary["pods"]] == ["web"]
        assert b'kubelet_node_name{node="node-a"} 1\n' in await page("metrics")
        assert b"node_cpu_usage_seconds_total" in await page("metrics/resource")
        cadvisor = (await page("metrics/cadvisor")).decode()
        assert "machine_cpu_cores" in cadvisor
        if summary["pods"][0]["containers"]:  # where there are control groups
            assert summary["pods"][0]["process_stats"]["process_count"] > 0
            assert summary["node"]["systemContainers"][0]["memory"]["workingSetBytes"] > 0
            of_pod = [each for each in cadvisor.splitlines() if 'pod="web"' in each]
            sums = [each for each in of_pod if each.startswith("container_memory_working_set")]
            assert sorted('container=""' in each for each in sums) == [False, True]
            assert any(each.startswith("container_spec_cpu_shares") for each in of_pod)
        pods = json.loads(await page("pods"))
        assert [each["metadata"]["name"] for each in pods["items"]] == ["web"]
        running = json.loads(await page("runningpods/"))
        assert running["items"][0]["spec"]["containers"][0]["name"] == "c"
        shown = json.loads(await page("configz"))["kubeletconfig"]
        port = (await cluster.admin.get(NODES, "", "node-a"))["status"]["daemonEndpoints"]
        assert shown.pop("port") == port["kubeletEndpoint"]["Port"]
        usual = whole(read_configuration({}))
        del usual["port"]
        assert shown == usual
        with pytest.raises(HTTPError, match="404"):
            await page("none")

    run(tmp_path, story)


async def refusal(cluster: StreamCluster, path: str) -> tuple[int, str]:
    """Return with what a node refuses a page."""
    with pytest.raises(HTTPError) as caught:
        await page_of(cluster, path)
    return caught.value.code, caught.value.read().decode().strip()


def test_pages_of_a_node_that_it_refuses(tmp_path: Path) -> None:
    async def story(cluster: StreamCluster) -> None:
        code, text = await refusal(cluster, "exec/default/none/c?output=1&command=x")
        assert (code, text) == (404, "pod does not exist")
        assert json.loads(await page_of(cluster, "allocatedPods"))["kind"] == "PodList"

    run(tmp_path, story)


def test_debug_handlers_that_are_off(tmp_path: Path) -> None:
    async def story(cluster: StreamCluster) -> None:
        for path in ("exec/default/web/c", "containerLogs/default/web/c", "runningpods/"):
            code, text = await refusal(cluster, path)
            assert (code, text) == (405, "Debug endpoints are disabled.")
        assert json.loads(await page_of(cluster, "pods"))["items"] == []

    run(tmp_path, story, configuration={"enableDebuggingHandlers": False})


def test_how_much_of_a_log_is_asked_for() -> None:
    assert selection_of({"tail": ["all"]}, 0).tail_lines is None
    assert selection_of({"tail": ["3"]}, 0).tail_lines == 3
    assert selection_of({"tailLines": ["0"]}, 0).tail_lines == 0
