"""Ids, facts, the process outside, and what is passed on: each by itself."""

import asyncio
import os
import signal
import socket
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from kvstack.agents.client.built_in import PODS, SERVICES
from kvstack.agents.standalone.doctor.findings import Level
from kvstack.agents.standalone.doctor.pods import without_root
from kvstack.agents.standalone.rootless import facts, ids
from kvstack.agents.standalone.rootless import published as published_ports
from kvstack.agents.standalone.rootless.facts import Facts
from kvstack.agents.standalone.rootless.ids import Subordinates, first_range, maps
from kvstack.agents.standalone.rootless.outside import Outside, OutsideError
from kvstack.agents.standalone.rootless.published import (
    PublishedPort,
    PublishedPorts,
    _inside,
    passed_on,
    published,
)
from kvstack.component.line_log.line_logger import LineLogger
from tests.agents.dns.given import GivenInformers
from tests.support.list_log import ListLog
from tests.support.network.ports import free_ports
from tests.support.waiting import eventually

if TYPE_CHECKING:
    from kvstack.agents.client.informers import Informers

LOOPBACK = "127.0.0.1"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("ada:100000:65536\n", (100000, 65536)),
        ("1000:100000:65536\n", (100000, 65536)),
        ("bob:1:65536\nada:200000:131072\nada:5:65536\n", (200000, 131072)),
        ("ada:100000:65534\n", None),
        ("ada:100000\nada:x:65536\n\n# ada:1:65536\n", None),
        (":100000:65536\n", None),
        ("", None),
    ],
)
def test_the_first_range_that_is_large_enough(text: str, found: tuple[int, int] | None) -> None:
    assert first_range(text, 1000, "ada") == found
    assert first_range(text, 7, "") is None


def test_root_inside_is_the_user() -> None:
    assert maps(1000, (0, 0)) == [(0, 1000, 1)]
    assert maps(1000, (100000, 65536)) == [(0, 1000, 1), (1, 100000, 65536)]


def test_what_is_lacking_of_subordinate_ids(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "newuidmap is not installed" in ids.subordinate_ids(1000, "ada").problem
    for name in ("newuidmap", "newgidmap"):
        (tmp_path / name).touch(0o755)
    files = {kind: tmp_path / f"sub{kind}" for kind in ("uid", "gid")}
    monkeypatch.setattr(ids, "_FILES", files)
    assert "subuid: No such file" in ids.subordinate_ids(1000, "ada").problem
    for file in files.values():
        file.write_text("bob:1:65536\n")
    assert "has no 65,535 ids of user ada" in ids.subordinate_ids(1000, "ada").problem
    found = ids.subordinate_ids(1000, "bob")
    assert found == Subordinates((1, 65536), (1, 65536))


def test_settings_that_forbid_a_user_namespace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(facts, "_SYSCTLS", tmp_path)
    assert facts.explained("why") == "a user namespace cannot be made: why"
    for name in ("user", "kernel"):
        (tmp_path / name).mkdir()
    (tmp_path / "user/max_user_namespaces").write_text("0\n")
    (tmp_path / "kernel/unprivileged_userns_clone").write_text("1\n")
    (tmp_path / "kernel/apparmor_restrict_unprivileged_userns").write_text("1\n")
    text = facts.explained("why")
    assert "user.max_user_namespaces is 0" in text
    assert "a profile of AppArmor is needed" in text
    assert "unprivileged_userns_clone" not in text


def test_what_doctor_says() -> None:
    whole = Facts(subordinates=Subordinates((1, 65536), (1, 65536)), uplink="pasta")
    assert {each.level for each in without_root(whole)} == {Level.OK}
    lacking = Facts(subordinates=Subordinates(problem="none"))
    levels = {each.subject: each.level for each in without_root(lacking)}
    assert levels == {"node": Level.OK, "subordinate ids": Level.LIMITED, "uplink": Level.LIMITED}
    (alone,) = without_root(Facts("it is forbidden"))
    assert (alone.level, alone.found) == (Level.LIMITED, "no: it is forbidden")


def test_the_process_outside_listens_and_ends_with_this_side() -> None:
    outside = Outside.start()
    (port,) = free_ports(1)
    with outside.listen("tcp", LOOPBACK, port) as server:
        with pytest.raises(OutsideError, match="Address already in use"):
            outside.listen("tcp", LOOPBACK, port)
        with socket.create_connection((LOOPBACK, port)):
            server.accept()[0].close()
    with outside.listen("udp", LOOPBACK, port) as server:
        assert server.type == socket.SOCK_DGRAM
    with pytest.raises(OutsideError, match="No such file"):
        outside.map_ids(1 << 30, [(0, 1, 1)], [(0, 1, 1)])
    outside.close()  # and waits for its end
    with pytest.raises(OutsideError, match="has ended"):
        outside.listen("tcp", LOOPBACK, port)


def test_a_process_outside_that_is_killed_is_missed() -> None:
    outside = Outside.start()
    os.kill(outside.pid, signal.SIGKILL)
    os.waitpid(outside.pid, 0)
    with pytest.raises(OutsideError, match="has ended"):
        outside.listen("tcp", LOOPBACK, 0)
    outside.close()


def test_what_is_passed_on() -> None:
    async def story() -> None:
        (port,) = free_ports(1)
        inside = await asyncio.start_server(answer, "127.0.0.2", port)
        outside = Outside.start()
        try:
            async with passed_on(outside, (LOOPBACK, port), LineLogger([], "error")):
                # Inside and outside are one network here: the listener leads to itself.
                reader, writer = await asyncio.open_connection("127.0.0.2", port)
                assert await reader.readline() == b"inside\n"
                writer.close()
                with pytest.raises(OutsideError, match="in use"):
                    async with passed_on(outside, (LOOPBACK, port), LineLogger([], "error")):
                        pass
        finally:
            outside.close()
            inside.close()

    def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"inside\n")
        writer.close()

    asyncio.run(story())


@pytest.mark.parametrize(
    ("host", "inside"),
    [
        ("127.0.0.1", "127.0.0.1"), ("0.0.0.0", "127.0.0.1"), ("::", "::1"), ("::1", "::1"),
        ("192.0.2.7", "192.0.2.7"), ("localhost", "localhost"),
    ],
)  # fmt: skip
def test_where_a_listener_is_inside(host: str, inside: str) -> None:
    assert _inside(host) == inside


class GivenOutside:
    """Listens on any free port of the loopback, whatever is asked for."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def listen(self, kind: str, host: str, port: int) -> socket.socket:
        assert (kind, host) == ("tcp", LOOPBACK)
        self.asked.append(port)
        own = socket.socket()
        own.bind((LOOPBACK, 0))
        own.listen()
        return own


def test_ports_follow_pods_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(published_ports, "PORTS_MAX", 2)

    async def story() -> None:
        informers, outside, log = GivenInformers(), GivenOutside(), ListLog()
        informers.give(SERVICES, [])
        made = PublishedPorts(
            cast("Outside", outside), cast("Informers", informers), ("n", "127.0.0.2"), log
        )
        await made.start()
        try:
            for address in ("127.0.0.3", "127.0.0.4"):
                ports = [{"containerPort": 1, "hostPort": 9000, "hostIP": address}]
                informers.give(PODS, [named(address, pod(*ports))])
                await eventually(partial(leads_to, made, address))
            ports = [{"containerPort": 1, "hostPort": each} for each in (9001, 9002, 9003, 9004)]
            informers.give(PODS, [named("many", pod(*ports))])
            await eventually(lambda: {port.port for port, _ in made._relays} == {9001, 9002})
            assert outside.asked == [9000, 9000, 9001, 9002]
            await eventually(lambda: "too many" in str(log.lines))
        finally:
            await made.stop()

    asyncio.run(story())


def leads_to(ports: PublishedPorts, address: str) -> bool:
    return {at for _, at in ports._relays} == {address}


def named(name: str, pod: dict[str, Any]) -> dict[str, Any]:
    meta = {"name": name, "namespace": "default", "uid": name, "resourceVersion": "1"}
    return {"metadata": meta, **pod}


def pod(*ports: dict[str, Any], phase: str = "Running", node: str = "n") -> dict[str, Any]:
    return {
        "spec": {"nodeName": node, "containers": [{"ports": list(ports)}]},
        "status": {"phase": phase},
    }


def test_which_ports_the_machine_reaches() -> None:
    services: list[dict[str, Any]] = [
        {"spec": {"ports": [{"port": 80, "nodePort": 30080}, {"port": 53, "protocol": "UDP"}]}},
        {"spec": {"ports": [{"port": 53, "protocol": "UDP", "nodePort": 30053}]}},
        {"spec": {"ports": [{"port": 9, "protocol": "SCTP", "nodePort": 30009}]}},
        {"spec": {}},
    ]
    pods = [
        pod({"containerPort": 80, "hostPort": 8080}, {"containerPort": 81}),
        pod({"containerPort": 80, "hostPort": 80}),
        pod({"containerPort": 80, "hostPort": 8081, "hostIP": "127.0.0.1"}),
        pod({"containerPort": 80, "hostPort": 8082, "hostIP": "0.0.0.0"}),
        pod({"containerPort": 80, "hostPort": 8083}, phase="Succeeded"),
        pod({"containerPort": 80, "hostPort": 8084}, node=""),
        pod({"containerPort": 80, "hostPort": 8085}, node="hollow"),
    ]
    assert published(services, pods, "n") == {
        PublishedPort("tcp", 30080): "",
        PublishedPort("udp", 30053): "",
        PublishedPort("tcp", 8080): "",
        PublishedPort("tcp", 8081): "127.0.0.1",
        PublishedPort("tcp", 8082): "",
    }
