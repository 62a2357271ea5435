"""DNS as a part of `kvstack up`: its Service, its EndpointSlice, what takes over, what pods see."""

import asyncio
import json
import subprocess
from collections.abc import Awaitable, Callable
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
from dns.message import from_wire, make_query

from kvstack.agents.client.built_in import ENDPOINT_SLICES, SERVICES
from kvstack.agents.client.resource_type import ResourceType
from kvstack.agents.dns.publishing.kube_dns import (
    MANAGER,
    Endpoint,
    cluster_ip,
    decide,
    piece,
    service,
)
from kvstack.agents.kubelet.configuration import whole
from kvstack.agents.standalone import dns_access
from kvstack.agents.standalone.agent_settings import agent_options
from kvstack.agents.standalone.local_dns import LocalDns, LocalDnsOptions
from kvstack.agents.standalone.stack_settings import split_own, stack_options
from kvstack.apimachinery.well_known import SLICE_MANAGED_BY_LABEL
from kvstack.apiserver.server.certs.pki import Pki
from kvstack.apiserver.server.settings.flags import TABLE
from kvstack.component.flags.command_line import CommandLine, UsageError
from tests.agents.dns.given import over_udp
from tests.agents.standalone.test_stack import lines_of, up
from tests.agents.support.cluster import TestCluster, eventually
from tests.agents.support.namespaces import has_namespaces
from tests.apiserver.stories.clients import ClientsMissingError, clients
from tests.support.http.pages import get
from tests.support.list_log import ListLog
from tests.support.network.ports import free_ports

HERE = Endpoint("192.0.2.7", 5353)
NAME = "kube-dns-n"
OWNER = {**service("10.96.0.10"), "metadata": {**service("")["metadata"], "uid": "u"}}
OWN = piece(NAME, OWNER, HERE)
OWN["metadata"]["resourceVersion"] = "1"
ROLES = {
    each: ResourceType("rbac.authorization.k8s.io", "v1", each.lower() + "s", each)
    for each in ("Role", "RoleBinding")
}


def of_core_dns(*, ready: bool = True, manager: str = "endpointslice-controller") -> dict[str, Any]:
    labels = {"kubernetes.io/service-name": "kube-dns", SLICE_MANAGED_BY_LABEL: manager}
    return {
        "metadata": {"name": "kube-dns-x", "namespace": "kube-system", "labels": labels},
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["10.244.0.9"], "conditions": {"ready": ready}}],
        "ports": [{"name": "dns", "port": 53, "protocol": "UDP"}],
    }


@pytest.mark.parametrize(
    ("owner", "slices", "endpoint", "verb"),
    [
        (OWNER, [], HERE, "create"),
        (OWNER, [OWN], HERE, ""),
        (OWNER, [OWN], Endpoint("192.0.2.8", 5353), "update"),
        (OWNER, [OWN], Endpoint("192.0.2.7", 53), "update"),
        (OWNER, [OWN], Endpoint("192.0.2.7", 5353, 9153), "update"),
        (OWNER, [OWN], Endpoint("192.0.2.7", 5353, is_probed=True), "update"),
        (OWNER, [OWN], Endpoint("fd00::7", 53), "delete"),
        (OWNER, [OWN], None, "delete"),
        (OWNER, [], None, ""),
        (None, [], HERE, ""),
        (OWNER, [OWN, of_core_dns()], HERE, "delete"),
        (OWNER, [of_core_dns()], HERE, ""),
        (OWNER, [OWN, of_core_dns(ready=False)], HERE, ""),
        (OWNER, [of_core_dns(manager=MANAGER)], HERE, "create"),
    ],
)
def test_what_is_written(
    owner: dict[str, Any] | None, slices: list[dict[str, Any]], endpoint: Endpoint | None, verb: str
) -> None:
    found = decide(NAME, owner, slices, endpoint)
    assert (found.verb if found else "") == verb
    if found is not None and verb == "update":
        assert found.object["metadata"]["resourceVersion"] == "1"


def test_the_slice_has_the_ports_of_the_service() -> None:
    made = piece(NAME, OWNER, Endpoint("192.0.2.7", 53, 9153))
    of_service = {(each["name"], each["port"]) for each in OWNER["spec"]["ports"]}
    assert {(each["name"], each["port"]) for each in made["ports"]} == of_service


def test_the_address_of_the_service_is_the_tenth() -> None:
    assert cluster_ip(ip_network("10.96.0.0/16")) == "10.96.0.10"
    assert cluster_ip(ip_network("fd00:10::/108")) == "fd00:10::a"
    assert cluster_ip(ip_network("10.96.0.0/29")) == ""


def run(tmp_path: Path, story: Callable[[TestCluster], Awaitable[None]]) -> None:
    async def body() -> None:
        async with TestCluster(tmp_path) as cluster:
            for each in dns_access.OBJECTS:
                if each["kind"] in ROLES:
                    await cluster.admin.create(ROLES[each["kind"]], "kube-system", dict(each))
            await story(cluster)

    asyncio.run(body())


def test_as_its_own_user_it_makes_the_service_and_gives_way_to_coredns(tmp_path: Path) -> None:
    async def story(cluster: TestCluster) -> None:
        api, informers = cluster.api(dns_access.USER), cluster.informers
        options = LocalDnsOptions("n", "127.0.0.1", "10.0.0.10")
        # An EndpointSlice has no address of the loopback; what is answered there is told it is.
        dns = LocalDns(api, informers, cluster.clock, cluster.log, options)
        await dns.start()
        try:
            services = informers.of(SERVICES).store
            slices = informers.of(ENDPOINT_SLICES).store
            made = await eventually(lambda: services.get("kube-system/kube-dns"))
            assert made["spec"]["clusterIP"] == "10.0.0.10"
            lines = await eventually(lambda: [f for m, f in cluster.log.of("info")
                                              if m == "DNS is serving"])  # fmt: skip
            port = lines[0]["port"]
            assert isinstance(port, int)
            name = "kube-dns.kube-system.svc.cluster.local"

            async def answered() -> str:
                found = from_wire(await over_udp(port, make_query(name, "A").to_wire()))
                return found.answer[0][0].to_text() if found.answer else ""

            await eventually(lambda: dns._server.is_synced)
            assert await answered() == "10.0.0.10"
            metrics = await eventually(lambda: [f for m, f in cluster.log.of("info")
                                                if m == "metrics of DNS are served"])  # fmt: skip
            url = f"http://127.0.0.1:{metrics[0]['port']}/metrics"
            page = (await get(url))[1].decode()
            assert (
                f'coredns_dns_requests_total{{family="1",proto="udp",server="dns://:{port}"' in page
            )
            assert slices.get(f"kube-system/{NAME}") is None
            dns._objects.answers_at(HERE)
            own = await eventually(lambda: slices.get(f"kube-system/{NAME}"))
            assert own["endpoints"][0]["addresses"] == ["192.0.2.7"]
            assert [each["port"] for each in own["ports"]] == [5353, 5353]
            # CoreDNS is scaled up, and down.
            made = await cluster.admin.create(ENDPOINT_SLICES, "kube-system", of_core_dns())
            await eventually(lambda: slices.get(f"kube-system/{NAME}") is None)
            await cluster.admin.delete(ENDPOINT_SLICES, "kube-system", "kube-dns-x")
            await eventually(lambda: slices.get(f"kube-system/{NAME}"))
            # What somebody takes away comes back.
            await cluster.admin.delete(ENDPOINT_SLICES, "kube-system", NAME)
            await eventually(lambda: slices.get(f"kube-system/{NAME}"))
        finally:
            await dns.stop()
        assert not cluster.log.of("error")

    run(tmp_path, story)


def test_a_service_of_somebody_else_is_kept(tmp_path: Path) -> None:
    async def story(cluster: TestCluster) -> None:
        theirs = service("10.0.0.11")
        theirs["spec"]["selector"] = {"app": "theirs"}
        await cluster.admin.create(SERVICES, "kube-system", theirs)
        api, options = cluster.api(dns_access.USER), LocalDnsOptions("n", "127.0.0.1", "10.0.0.10")
        dns = LocalDns(api, cluster.informers, cluster.clock, cluster.log, options)
        await dns.start()
        try:
            dns._objects.answers_at(HERE)
            store = cluster.informers.of(ENDPOINT_SLICES).store
            await eventually(lambda: store.get(f"kube-system/{NAME}"))
            kept = await cluster.admin.get(SERVICES, "kube-system", "kube-dns")
            assert kept["spec"]["clusterIP"] == "10.0.0.11"
            assert kept["spec"]["selector"] == {"app": "theirs"}
        finally:
            await dns.stop()

    run(tmp_path, story)


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ((), ("10.96.0.10",)),
        (("--without=dns",), ()),
        (("--without=dns", "--cluster-dns=10.96.0.10"), ("10.96.0.10",)),
        (("--cluster-dns=none",), ()),
        (("--cluster-dns=192.0.2.1",), ("192.0.2.1",)),
        (("--dns-autopath=true",), ("10.96.0.10",)),
    ],
)
def test_whom_pods_ask(tmp_path: Path, flags: tuple[str, ...], expected: tuple[str, ...]) -> None:
    own, _ = split_own([f"--data-dir={tmp_path}", *flags])
    options = stack_options(own, CommandLine(TABLE))
    log = ListLog()
    pki = Pki(tmp_path / "kubernetes" / "pki", own.kubeconfig, options, "https://127.0.0.1:1", log)
    pki.ensure()
    found = agent_options(own, (), (ip_network("10.96.0.0/16"),))
    assert found.node is not None
    assert tuple(found.node.cluster_dns) == expected
    shown = whole(found.node.configuration)  # /configz
    assert tuple(shown["clusterDNS"]) == expected
    assert shown["evictionHard"] == dict(found.node.evictions.hard)
    assert shown["podLogsDir"] == str(found.node.root / "logs")
    assert shown["authentication"]["x509"]["clientCAFile"] == found.node.client_ca
    assert not shown["healthzPort"]  # nothing listens there
    assert (found.dns is None) is ("dns" in own.without)
    assert agent_options(own).dns is None
    if found.dns is not None:
        assert found.dns.walks is ("--dns-autopath=true" in flags)


def test_who_is_asked_must_be_an_address() -> None:
    with pytest.raises(UsageError, match="--cluster-dns 'x' does not appear"):
        split_own(["--cluster-dns=x"])


_ASKS = """
import socket, sys, time
print(open('/etc/resolv.conf').read().replace(chr(10), '|'))
asking = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
asking.settimeout(30)
for each in sys.argv[3:]:
    name = b''.join(bytes([len(x)]) + x.encode() for x in each.split('.')) + bytes(1)
    for _ in range(300):  # until the server knows the address of this pod
        asking.sendto(bytes((1, 2, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0)) + name + bytes((0, 1, 0, 1)),
                      (sys.argv[1], int(sys.argv[2])))
        answer = asking.recv(999)
        if not answer[3] & 15:
            break
        time.sleep(0.1)
    print(answer.hex())
"""


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.skipif(not has_namespaces(), reason="networks of pods need root")
@pytest.mark.skipif(
    not Path("/usr/bin/python3").exists(), reason="needs /usr/bin/python3 and the numbers of x86_64"
)
def test_a_pod_asks_for_a_name(tmp_path: Path) -> None:
    try:
        program = clients("1.37") / "kubectl"
    except ClientsMissingError as error:
        pytest.skip(f"no kubectl: {error}")
    (api,) = free_ports(1)
    with up(tmp_path / "data", f"--secure-port={api}", "--dns-autopath=true") as process:
        lines_of(process)
        file = tmp_path / "data" / "kubernetes" / "admin.conf"

        def kubectl(*words: str, given: str | None = None) -> str:
            done = subprocess.run(
                [program, f"--kubeconfig={file}", *words], input=given, check=False,
                capture_output=True, text=True, timeout=60,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr
            return done.stdout

        async def own_slice() -> Any:
            def look() -> Any:
                some = json.loads(kubectl("get", "endpointslices", "-n=kube-system", "-o=json"))
                ours = [e for e in some["items"] if is_ours(e)]
                return ours[0] if ours else None

            return await eventually(look, every_s=0.3)

        own = asyncio.run(own_slice())
        address, port = own["endpoints"][0]["addresses"][0], own["ports"][0]["port"]
        container = {
            "name": "c", "image": "host:latest", "command": ["/usr/bin/python3", "-c", _ASKS],
            "args": [
                address, str(port), "kubernetes.default.svc.cluster.local",
                "kube-dns.kube-system.default.svc.cluster.local",
            ],
        }  # fmt: skip
        pod = {
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "asks"},
            "spec": {"restartPolicy": "Never", "containers": [container]},
        }  # fmt: skip
        asyncio.run(eventually_account(kubectl))
        kubectl("apply", "-f", "-", given=json.dumps(pod))
        kubectl("wait", "pod/asks", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=50s")
        file_text, wire, walked = kubectl("logs", "asks").splitlines()
        assert file_text.startswith(
            "search default.svc.cluster.local svc.cluster.local cluster.local"
        )
        assert "|nameserver 10.96.0.10|options ndots:5|" in file_text
        assert from_wire(bytes.fromhex(wire)).answer[0][0].to_text() == "10.96.0.1"
        alias, address = from_wire(bytes.fromhex(walked)).answer
        assert alias[0].to_text() == "kube-dns.kube-system.svc.cluster.local."
        assert address[0].to_text() == "10.96.0.10"
        assert "MissingClusterDNS" not in kubectl("get", "events", "-A")


def is_ours(found: dict[str, Any]) -> bool:
    return bool(found["metadata"]["labels"].get(SLICE_MANAGED_BY_LABEL) == MANAGER)


async def eventually_account(kubectl: Callable[..., str]) -> None:
    await eventually(lambda: "default" in kubectl("get", "serviceaccounts", "-o=name"), every_s=0.3)
