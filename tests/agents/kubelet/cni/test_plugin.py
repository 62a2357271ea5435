"""Our network as container engines ask for it, in namespaces that the test made."""

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import pytest

from kvstack.agents.client.api import Api
from kvstack.agents.client.built_in import NODES
from kvstack.agents.client.kubeconfig import connect, load
from kvstack.agents.kubelet.cni import command
from kvstack.agents.kubelet.cni.plugin import CniError, answer
from kvstack.agents.kubelet.runtime.process.sandboxes import in_own_thread
from kvstack.agents.kubelet.runtime.process.shim import syscalls
from kvstack.agents.standalone.in_memory.background import BackgroundCluster, Settings
from kvstack.agents.standalone.parts import CONTROLLERS, SCHEDULER
from kvstack.agents.standalone.parts import NODES as HOLLOW
from kvstack.component.net import nft
from kvstack.component.net.hosts import has_ipv6
from tests.agents.support.namespaces import has_namespaces
from tests.support.documented import words

NAMESPACES = pytest.mark.skipif(not has_namespaces(), reason="interfaces need root and namespaces")
SUBNET, WHOLE = "10.244.3.0/29", "10.244.0.0/16"
GIVEN = {"cniVersion": "1.0.0", "name": "kvstack", "subnet": SUBNET, "clusterCIDR": WHOLE}


class Engine:
    """What asks; it is in a namespace of its own."""

    def __init__(self, state: Path) -> None:
        self._state = state

    def ask(self, what: str, container: str = "", namespace: int = -1, **more: Any) -> Any:
        environment = {
            "CNI_COMMAND": what,
            "CNI_CONTAINERID": container,
            "CNI_IFNAME": "eth0",
            "CNI_NETNS": f"/proc/self/fd/{namespace}",
        }
        return answer(environment, {**GIVEN, **more}, self._state)

    def add(self, container: str, namespace: int, **more: Any) -> str:
        """Return the address of a container that is connected."""
        found = self.ask("ADD", container, namespace, **more)
        [row] = found["ips"]
        assert row["gateway"] == "10.244.3.1"
        assert found["interfaces"][row["interface"]]["name"] == "eth0"
        address, _, prefix = row["address"].partition("/")
        assert prefix == more.get("subnet", SUBNET).partition("/")[2]
        return str(address)


@contextmanager
def pod() -> Iterator[int]:
    """Give a network namespace that nothing is in; this thread stays where it is."""
    own = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    syscalls.unshare(syscalls.CLONE_NEWNET)
    made = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    syscalls.setns(own, syscalls.CLONE_NEWNET)
    os.close(own)
    try:
        yield made
    finally:
        os.close(made)


@contextmanager
def inside_of(namespace: int) -> Iterator[None]:
    """Be in a namespace."""
    own = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    syscalls.setns(namespace, syscalls.CLONE_NEWNET)
    try:
        yield
    finally:
        syscalls.setns(own, syscalls.CLONE_NEWNET)
        os.close(own)


@contextmanager
def listening(namespace: int, address: str) -> Iterator[None]:
    with inside_of(namespace):
        server = socket.create_server((address, 80))
    with server:
        yield


def run(directory: Path, story: Callable[[Engine], None]) -> None:
    def inside() -> None:
        syscalls.unshare(syscalls.CLONE_NEWNET)
        story(Engine(directory))

    asyncio.run(in_own_thread(inside))


def output(*arguments: str) -> str:
    return subprocess.check_output(arguments, text=True)


@NAMESPACES
@pytest.mark.skipif(not nft.is_installed(), reason="the program nft is not installed")
def test_containers_come_and_go(tmp_path: Path) -> None:
    def story(engine: Engine) -> None:
        with pod() as one, pod() as two:
            assert engine.add("c1", one) == "10.244.3.2"
            mapped = [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]
            other = engine.add("c2", two, runtimeConfig={"portMappings": mapped})
            assert other == "10.244.3.3"
            assert output("ip", "-o", "link").count(": kvpod") == 2
            assert "dnat to 10.244.3.3:80" in output("nft", "list", "ruleset")
            with listening(two, other), inside_of(one):  # a pod reaches another
                socket.create_connection((other, 80), 10).close()
            engine.ask("CHECK", "c1", one)
            with pytest.raises(CniError, match="connected already"):
                engine.add("c1", one)
            engine.ask("DEL", "c2", two)
            assert "dnat to" not in output("nft", "list", "ruleset")
            with pytest.raises(CniError, match="is not connected") as raised:
                engine.ask("CHECK", "c2", two)
            assert raised.value.code == 3
        engine.ask("DEL", "c1")  # its namespace is gone
        engine.ask("DEL", "c1")
        assert ": kvpod" not in output("ip", "-o", "link")

    run(tmp_path, story)


@NAMESPACES
def test_what_an_engine_forgot_is_collected(tmp_path: Path) -> None:
    def story(engine: Engine) -> None:
        with pod() as one, pod() as two:
            engine.add("c1", one)
            engine.add("c2", two)
            more: dict[str, Any] = {"cniVersion": "1.1.0"}
            more["cni.dev/valid-attachments"] = [{"containerID": "c2", "ifname": "eth0"}]
            for _ in range(2):
                engine.ask("GC", **more)
            engine.ask("CHECK", "c2", two)
            with pytest.raises(CniError, match="is not connected"):
                engine.ask("CHECK", "c1", one)
            with pytest.raises(CniError, match="valid-attachments is missing"):
                engine.ask("GC")

    run(tmp_path, story)


@NAMESPACES
def test_a_range_that_is_full_leaves_nothing_behind(tmp_path: Path) -> None:
    def story(engine: Engine) -> None:
        with pod() as one:
            engine.add("c1", one, subnet="10.244.3.0/30")
            with pod() as two, pytest.raises(CniError, match=r"all 2 addresses .* are taken"):
                engine.add("c2", two, subnet="10.244.3.0/30")
            assert output("ip", "-o", "link").count(": kvpod") == 1
            assert len(list(tmp_path.glob("cni/kvstack/*.json"))) == 1

    run(tmp_path, story)


@NAMESPACES
@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
def test_a_container_has_an_address_of_each_family(tmp_path: Path) -> None:
    both: Any = {"subnet": f"{SUBNET},fd00:9:3::/64", "clusterCIDR": f"{WHOLE},fd00:9::/32"}

    def story(engine: Engine) -> None:
        with pod() as one, pod() as two:
            found = engine.ask("ADD", "c1", one, **both)
            assert found["ips"] == [
                {"address": "10.244.3.2/29", "gateway": "10.244.3.1", "interface": 2},
                {"address": "fd00:9:3::2/128", "gateway": "fe80::1", "interface": 2},
            ]
            assert found["routes"] == [
                {"dst": "0.0.0.0/0", "gw": "10.244.3.1"},
                {"dst": "::/0", "gw": "fe80::1"},
            ]
            engine.ask("ADD", "c2", two, **both)
            with inside_of(two):
                server = socket.create_server(("fd00:9:3::3", 80), family=socket.AF_INET6)
            with server, inside_of(one):
                socket.create_connection(("fd00:9:3::3", 80), 10).close()
            for each in ("c1", "c2"):
                engine.ask("DEL", each, **both)
            again = engine.ask("ADD", "c3", two, **both)  # others are known again from files
            assert again["ips"][1]["address"] == "fd00:9:3::2/128"

    run(tmp_path, story)


@pytest.mark.parametrize(
    ("environment", "more", "code", "text"),
    [
        ({}, {"cniVersion": "0.2.0"}, 1, "one of 1.0.0, 1.1.0"),
        ({}, {"name": "../x"}, 7, "name is"),
        ({}, {"subnet": "10.9.0.0/24"}, 7, "is not in clusterCIDR"),
        ({}, {"subnet": "many"}, 7, "subnet: "),
        ({}, {"clusterCIDR": None}, 7, "clusterCIDR: "),
        ({}, {"runtimeConfig": {"portMappings": [{"hostPort": 70000}]}}, 7, "portMappings"),
        ({"CNI_COMMAND": "JUMP"}, {}, 4, "CNI_COMMAND is 'JUMP'"),
        ({"CNI_CONTAINERID": "../../x"}, {}, 4, "CNI_CONTAINERID is '../../x'"),
        ({"CNI_CONTAINERID": ""}, {}, 4, "CNI_CONTAINERID is ''"),
        ({"CNI_IFNAME": "eth1"}, {}, 4, "eth0 alone"),
        ({"CNI_NETNS": "/none"}, {}, 4, "No such file"),
    ],
)
def test_what_cannot_be_done_is_reported(
    environment: dict[str, str], more: dict[str, Any], code: int, text: str, tmp_path: Path
) -> None:
    given = {"CNI_COMMAND": "ADD", "CNI_CONTAINERID": "c1", "CNI_IFNAME": "eth0", "CNI_NETNS": "/x"}
    with pytest.raises(CniError, match=text) as raised:
        answer({**given, **environment}, {**GIVEN, **more}, tmp_path)
    assert raised.value.code == code
    assert not list(tmp_path.glob("cni/*/*.json"))


def plugged(program: list[str], what: str, given: str) -> tuple[int, Any]:
    """Execute the program as engines do; return its exit code and what it prints."""
    done = subprocess.run(
        program,
        input=given,
        env={"CNI_COMMAND": what, "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    return done.returncode, json.loads(done.stdout or "null")


def test_engines_execute_it() -> None:
    program = [sys.executable, "-m", "kvstack", "cni"]
    versions = {"cniVersion": "1.1.0", "supportedVersions": ["1.0.0", "1.1.0"]}
    assert plugged(program, "VERSION", '{"cniVersion": "1.0.0"}') == (0, versions)
    code, told = plugged(program, "ADD", "{")
    assert (code, told["code"]) == (1, 6)
    code, told = plugged(program, "ADD", json.dumps({**GIVEN, "name": ""}))
    assert (code, told["cniVersion"], told["code"]) == (1, "1.0.0", 7)
    assert plugged(program, "STATUS", json.dumps({**GIVEN, "cniVersion": "1.1.0"})) == (0, None)


@pytest.mark.slow
def test_what_engines_read_is_installed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    alone = Settings(nodes=0, without=frozenset((CONTROLLERS, SCHEDULER, HOLLOW)))
    with BackgroundCluster(tmp_path / "cluster", alone) as cluster:
        _, *install = words(
            "kvstack cni install --kubeconfig FILE --cluster-cidr 10.244.0.0/16",
            {"FILE": str(cluster.kubeconfig)},
        )
        install += [
            "--node-name=two",
            *(f"--conf-dir={tmp_path / 'net.d'}", f"--bin-dir={tmp_path / 'bin'}"),
        ]
        assert command.main([*install]) == 1
        assert 'nodes "two" not found' in capsys.readouterr().err

        async def add_node() -> None:
            api = Api(connect(load(cluster.kubeconfig)))
            ranges = ["10.244.3.0/24", "fd00:9:3::/64"]
            spec = {"podCIDR": ranges[0], "podCIDRs": ranges}
            await api.create(NODES, "", {"metadata": {"name": "two"}, "spec": spec})
            await api.close()

        asyncio.run(add_node())
        assert command.main([*install, "--cluster-cidr=10.9.0.0/16"]) == 1
        assert not (tmp_path / "bin").exists()
        both = f"--cluster-cidr={WHOLE},fd00:9::/32"
        assert command.main([*install, both]) == 0
        text = (tmp_path / "net.d" / "10-kvstack.conflist").read_text()
        assert json.loads(text)["plugins"][0]["subnet"] == "10.244.3.0/24,fd00:9:3::/64"
        assert command.main([*install]) == 0
    found = json.loads((tmp_path / "net.d" / "10-kvstack.conflist").read_text())
    assert (found["cniVersion"], found["name"]) == ("1.0.0", "kvstack")
    [plugin] = found["plugins"]
    assert (plugin["type"], IPv4Network(plugin["subnet"])) == (
        "kvstack",
        IPv4Network("10.244.3.0/24"),
    )
    code, told = plugged([str(tmp_path / "bin" / "kvstack")], "VERSION", "")
    assert (code, told["supportedVersions"]) == (0, ["1.0.0", "1.1.0"])
