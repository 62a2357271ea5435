"""Pods on two machines reach each other and Services by name; machines join by tokens."""

import signal
from functools import partial
from ipaddress import ip_address, ip_network
from pathlib import Path

import pytest

from kvstack.agents.proxy.nftables import program
from kvstack.component.net.hosts import has_ipv6
from tests.agents.standalone.several import ASK, FIRST, SECOND, Several, several, stop
from tests.agents.standalone.test_services import SCRIPT
from tests.agents.standalone.test_stack import READY_S, STOP_S
from tests.agents.support.namespaces import has_namespaces
from tests.support.documented import words
from tests.support.waiting import wait_for

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.skipif(not has_namespaces(), reason="containers need root and namespaces"),
    pytest.mark.skipif(bool(program.problem()), reason=program.problem() or "-"),
]
_, REACHED = words("kvstack up --bind-address=0.0.0.0")


@pytest.mark.parametrize(  # the first with IPv6 beside it below
    "is_routed",
    [
        pytest.param(False, id="host-gw", marks=() if not has_ipv6() else pytest.mark.long),
        pytest.param(True, id="vxlan"),
    ],
)
def test_pods_of_two_machines(tmp_path: Path, *, is_routed: bool) -> None:
    with several(tmp_path, is_routed=is_routed) as here:
        up = here.start(REACHED)
        command = here.join_command()
        joined = here.join(command)
        _check_routes(here, is_routed=is_routed)
        first, second = here.serve("web", here.own_node()), here.serve("other", SECOND)

        here.reaches("web", f"http://{second}:8000/", first)  # from its own address
        here.reaches("other", f"http://{first}:8000/long", second)  # packets of all sizes pass
        here.kubectl("expose", "pod", "web", "--port=80", "--target-port=8000")
        here.kubectl("expose", "pod", "other", "--port=80", "--target-port=8000")
        here.reaches("other", "http://web/", second)
        here.reaches("web", "http://other.default.svc.cluster.local/", first)
        api = ("python3", "-c", SCRIPT, "https://kubernetes.default.svc/apis/apps/v1")
        assert here.kubectl("exec", "other", "--", *api) == "200"

        joined.send_signal(signal.SIGKILL)
        joined.wait(STOP_S)
        here.reaches("web", f"http://{second}:8000/", first)  # pods go on
        joined = here.join(command[:2])  # the machine is known: no token is needed
        here.reaches("other", "http://web/", second)
        _check_routes(here, is_routed=is_routed)

        here.kubectl(
            *words("kubectl drain two --ignore-daemonsets --delete-emptydir-data"),
            *("--force", "--grace-period=1", "--timeout=60s"),
        )
        stop(joined)
        assert here.routes(SECOND) == ""
        here.kubectl(*words("kubectl delete node two"))
        wait_for(lambda: here.routes(FIRST) == "", "the route to a node that is gone goes", READY_S)
        stop(up)
        for machine in (FIRST, SECOND):
            assert "kvxlan" not in here.network.output(machine, "ip", "link")


def test_routes_that_others_create(tmp_path: Path) -> None:
    """With --network none pods have addresses of their own, and no node leads to another's."""
    with several(tmp_path) as here:
        up = here.start(REACHED, "--network=none")
        joined = here.join(here.join_command(), "--network=none")
        first, second = here.serve("web", here.own_node()), here.serve("other", SECOND)
        ranges = here.kubectl("get", "nodes", "-o", "jsonpath={.items[*].spec.podCIDR}").split()
        of_first, of_second = (
            next(each for each in ranges if ip_address(pod) in ip_network(each))
            for pod in (first, second)
        )
        assert of_first != of_second
        for machine in (FIRST, SECOND):
            assert here.routes(machine) == ""
            assert "kvxlan" not in here.network.output(machine, "ip", "link")
        assert here.ask("web", f"http://{second}:8000/") == ""
        # What the machines' network does in their place.
        ways = ((FIRST, of_second, SECOND), (SECOND, of_first, FIRST))
        for machine, pods, other in ways:
            via = here.network.address(other)
            here.network.output(machine, "ip", "route", "add", pods, "via", via)
        here.reaches("web", f"http://{second}:8000/", first)
        here.reaches("other", f"http://{first}:8000/long", second)
        hosts = here.kubectl("exec", "web", "--", "cat", "/etc/hosts").splitlines()
        assert hosts[:2] == ["# Kubernetes-managed hosts file.", "127.0.0.1\tlocalhost"]
        assert hosts[-1] == f"{first}\tweb"
        here.kubectl("delete", "pod", "--all", "--grace-period=1", "--timeout=60s")
        stop(joined)
        stop(up)
        for machine, pods, _ in ways:
            assert pods in here.network.output(machine, "ip", "route")  # they are not ours


IPV6 = pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
BOTH = (4, 6)
PODS = {BOTH: "10.7.0.0/16,fd00:7::/48", (6,): "fd00:7::/48"}
_, REACHED_BY_IPV6, SERVICES_OF_BOTH = words(
    "kvstack up --bind-address=:: --service-cluster-ip-range=10.96.0.0/16,fd00:96::/112"
)
SERVICES = {BOTH: SERVICES_OF_BOTH, (6,): "--service-cluster-ip-range=fd00:96::/112"}


@IPV6
@pytest.mark.parametrize(
    ("machines", "pods", "is_routed"),
    [
        pytest.param(BOTH, BOTH, False, id="both-host-gw"),
        pytest.param(BOTH, BOTH, True, id="both-vxlan", marks=pytest.mark.long),
        pytest.param((6,), (6,), False, id="six-host-gw", marks=pytest.mark.long),
        pytest.param((6,), (6,), True, id="six-vxlan"),
        pytest.param((4,), BOTH, False, id="six-over-four", marks=pytest.mark.long),
        pytest.param((4,), BOTH, True, id="six-over-four-vxlan", marks=pytest.mark.long),
    ],
)
def test_pods_of_two_machines_by_ipv6(
    tmp_path: Path, machines: tuple[int, ...], pods: tuple[int, ...], *, is_routed: bool
) -> None:
    """Machines have addresses of some families, and pods of some: of IPv6 at least."""
    with several(tmp_path, is_routed=is_routed, families=machines) as here:
        ranges = (f"--cluster-cidr={PODS[pods]}", SERVICES[pods])
        up = here.start(REACHED_BY_IPV6 if 6 in machines else REACHED, *ranges)
        joined = here.join(here.join_command())
        here.serve("web", here.own_node())
        here.serve("other", SECOND)
        own = {each: here.addresses(each) for each in ("web", "other")}
        assert [":" in each for each in own["other"]] == [each == 6 for each in pods]

        for client, server in (("web", "other"), ("other", "web")):
            for seen, address in zip(own[client], own[server], strict=True):
                here.reaches(client, f"http://{in_url(address)}:8000/", seen)
                here.reaches(client, f"http://{in_url(address)}:8000/long", seen)
            here.kubectl(
                *("expose", "pod", server, "--port=80", "--target-port=8000"),
                '--overrides={"spec": {"ipFamilyPolicy": "PreferDualStack"}}',
            )
            ips = here.kubectl("get", "service", server, "-o", "jsonpath={.spec.clusterIPs[*]}")
            for seen, address in zip(own[client], ips.split(), strict=True):
                here.reaches(client, f"http://{in_url(address)}/", seen)
            assert here.ask(client, f"http://{server}/") in own[client]
        api = ("python3", "-c", SCRIPT, "https://kubernetes.default.svc/apis/apps/v1")
        assert here.kubectl("exec", "other", "--", *api) == "200"
        for machine, name in ((FIRST, "other"), (SECOND, "web")):  # the machines reach pods, too
            for address in own[name]:
                here.network.output(machine, "python3", "-c", ASK, f"http://{in_url(address)}:8000")

        is_tunneled = is_routed or 6 not in machines
        way = f"dev kvxlan{6 if 6 in machines else 1}" if is_tunneled else "via fd00:cb::"
        assert way in here.routes(FIRST, 6)
        assert way in here.routes(SECOND, 6)
        here.kubectl(
            *("drain", SECOND, "--ignore-daemonsets", "--delete-emptydir-data"),
            *("--force", "--grace-period=1", "--timeout=60s"),
        )
        stop(joined)
        here.kubectl("delete", "node", SECOND)
        wait_for(lambda: here.routes(FIRST, 6) == "", "the route to a node that is gone", READY_S)
        stop(up)
        for machine in (FIRST, SECOND):
            assert here.routes(machine, 6) == ""
            assert "kvxlan" not in here.network.output(machine, "ip", "link")


def in_url(address: str) -> str:
    return f"[{address}]" if ":" in address else address


def _check_routes(here: Several, *, is_routed: bool) -> None:
    """Check the routes of both machines, once they are there."""
    for machine, other in ((FIRST, SECOND), (SECOND, FIRST)):
        way = "dev kvxlan1" if is_routed else f"via {here.network.address(other)} dev eth0"
        wait_for(partial(_has, here, machine, way), f"{machine}: {way}", READY_S)


def _has(here: Several, machine: str, way: str) -> bool:
    return way in here.routes(machine)


def test_who_may_join(tmp_path: Path) -> None:
    with several(tmp_path) as here:
        up = here.start(REACHED)
        created = here.run(FIRST, *words("kvstack token create --print-join-command"))
        program, *printed = created.stdout.split()
        assert program == "kvstack"
        kind, place, _, token, _, pin = printed
        documented = (
            "kvstack join 192.0.2.10:6443 --token TOKEN --discovery-token-ca-cert-hash sha256:HASH"
        )
        own_values = {"192.0.2.10:6443": place, "TOKEN": token, "sha256:HASH": pin}
        assert tuple(printed) == words(documented, own_values)
        listed = here.run(FIRST, *words("kvstack token list")).stdout
        assert token in listed
        assert "authentication,signing" in listed

        def refused(*flags: str) -> str:
            flags = (f"--root-dir={tmp_path / 'node'}", "--discovery-timeout=2s", *flags)
            found = here.run(SECOND, kind, place, f"--node-name={SECOND}", *flags)
            assert found.returncode == 1
            assert not (tmp_path / "node" / "kubelet.conf").exists()
            return found.stderr

        assert "--token is needed" in refused()
        assert "--discovery-token-ca-cert-hash is required" in refused(f"--token={token}")
        other = f"--discovery-token-ca-cert-hash=sha256:{'0' * 64}"
        assert "this is another cluster" in refused(f"--token={token}", other)
        own = f"--discovery-token-ca-cert-hash={pin}"
        unknown = refused(f"--token={token[:6]}.{'0' * 16}", own)
        assert "signed with another secret" in unknown
        assert "0" * 16 not in unknown

        short = here.run(FIRST, "token", "create", "--ttl=1s").stdout.strip()
        wait_for(lambda: short not in here.run(FIRST, "token", "list").stdout, "it ends", READY_S)
        assert "it is unknown or has ended" in refused(f"--token={short}", own)
        deleted = here.run(FIRST, *words("kvstack token delete TOKEN", {"TOKEN": token}))
        assert deleted.stdout == f'bootstrap token "{token[:6]}" deleted\n'
        assert "it is unknown or has ended" in refused(f"--token={token}", own)
        assert here.run(FIRST, "token", "delete", token).returncode == 1
        assert SECOND not in here.kubectl("get", "nodes", "-o", "name")
        stop(up)


def test_a_cluster_on_loopback_says_how_it_is_reached_and_believes_no_hostile_node(
    tmp_path: Path,
) -> None:
    with several(tmp_path) as here:
        up = here.start()
        hostile = tmp_path / "node.yaml"
        hostile.write_text(
            "{apiVersion: v1, kind: Node, metadata: {name: hostile}, "
            "spec: {podCIDR: 0.0.0.0/0, podCIDRs: [0.0.0.0/0]}}"
        )
        here.kubectl("create", "-f", str(hostile))
        fields = "--field-selector=involvedObject.name=hostile,reason=FailedToCreateRoute"
        wait_for(lambda: here.kubectl("get", "events", "-A", fields, "-o", "name"), "it is told")
        assert here.routes(FIRST) == ""
        found = here.run(FIRST, "token", "create", "--print-join-command")
        assert found.returncode == 1
        assert "--bind-address=0.0.0.0" in found.stderr
        assert here.run(FIRST, "token", "list").stdout == ""
        stop(up)
