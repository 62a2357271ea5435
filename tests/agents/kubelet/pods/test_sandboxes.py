"""What a pod asks of the runtime."""

from typing import Any

import pytest

from kvstack.agents.kubelet.pods.sandboxes import (
    NodeNames,
    NodeSettings,
    cgroup_of,
    hostname_problem,
    is_critical,
    limits_of,
    memory_volume_bytes,
    names_of,
    qos_of,
    root_problem,
    sandbox_of,
    security_of,
)
from kvstack.agents.kubelet.runtime.process.shim.privileges import CAPABILITIES, DEFAULT, granted
from kvstack.apimachinery.objects.json_object import Object
from tests.agents.kubelet.pods.test_worker import init, pod

NODE_BYTES = 8 << 30


def asking(**resources: Any) -> Object:
    obj: Object = pod()
    obj["spec"]["containers"][0]["resources"] = resources
    return obj


GUARANTEED = {"limits": {"cpu": "500m", "memory": "1Gi"}}


@pytest.mark.parametrize(
    ("obj", "qos", "group"),
    [
        (pod(), "BestEffort", "k/besteffort/podu"),
        (asking(requests={"cpu": "1"}), "Burstable", "k/burstable/podu"),
        (asking(**GUARANTEED), "Guaranteed", "k/podu"),
        (
            asking(requests={"cpu": "1"}, limits={"cpu": "2", "memory": "1Gi"}),
            "Burstable",
            "k/burstable/podu",
        ),
    ],
)
def test_classes_and_control_groups(obj: Object, qos: str, group: str) -> None:
    assert qos_of(obj) == qos
    assert cgroup_of(obj, "k") == group


@pytest.mark.parametrize(
    ("resources", "shares", "quota", "memory", "score"),
    [
        ({}, 2, 0, 0, 1000),
        (GUARANTEED, 512, 50_000, 1 << 30, -997),
        ({"requests": {"cpu": "100m", "memory": "2Gi"}}, 102, 0, 0, 750),
        ({"limits": {"cpu": "1m"}}, 2, 1000, 0, 999),
    ],
)
def test_limits(resources: Object, shares: int, quota: int, memory: int, score: int) -> None:
    obj = asking(**resources)
    found = limits_of(obj, obj["spec"]["containers"][0], NODE_BYTES)
    assert (found.cpu_shares, found.cpu_quota_us) == (shares, quota)
    assert (found.memory_bytes, found.oom_score) == (memory, score)


def test_a_containers_rights_are_over_its_pods() -> None:
    obj = pod()
    obj["spec"]["securityContext"] = {"runAsUser": 1, "fsGroup": 5, "supplementalGroups": [6]}
    container = obj["spec"]["containers"][0]
    container["securityContext"] = {
        "runAsUser": 2,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"], "add": ["NET_ADMIN"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    found = security_of(obj, container)
    assert (found.user, found.group, found.groups) == (2, None, (6, 5))
    assert (found.no_new_privileges, found.seccomp) == (True, "RuntimeDefault")
    assert granted(found.added, found.dropped) == {"NET_ADMIN"}
    assert security_of(obj, {"name": "b"}, seccomp_default=True).seccomp == "RuntimeDefault"


def test_capabilities() -> None:
    assert granted((), ()) == DEFAULT
    assert granted(("CAP_SYS_TIME",), ("chown",)) == (DEFAULT | {"SYS_TIME"}) - {"CHOWN"}
    assert granted(("ALL",), ("NET_RAW",)) == set(CAPABILITIES) - {"NET_RAW"}


@pytest.mark.parametrize(
    ("security", "image_user", "text"),
    [
        ({}, "", ""),
        ({"runAsNonRoot": True, "runAsUser": 1}, "", ""),
        ({"runAsNonRoot": True, "runAsUser": 0}, "5", "container's runAsUser breaks non-root"),
        ({"runAsNonRoot": True}, "", "container has runAsNonRoot and image will run as root"),
        ({"runAsNonRoot": True}, "nobody:x", "non-numeric user (nobody)"),
        ({"runAsNonRoot": True}, "65534:1", ""),
    ],
)
def test_who_must_not_be_root(security: Object, image_user: str, text: str) -> None:
    obj = pod()
    obj["spec"]["securityContext"] = security
    found = root_problem(obj, obj["spec"]["containers"][0], image_user)
    assert text in found
    assert bool(found) == bool(text)


NAMES = NodeNames(("10.96.0.10",), "c.local", ("1.1.1.1",), ("host",), ("ndots:1",))


@pytest.mark.parametrize(
    ("spec", "found"),
    [
        (
            {},
            (["10.96.0.10"], ["n.svc.c.local", "svc.c.local", "c.local", "host"], ["ndots:5"]),
        ),
        ({"dnsPolicy": "Default"}, (["1.1.1.1"], ["host"], ["ndots:1"])),
        ({"hostNetwork": True}, (["1.1.1.1"], ["host"], ["ndots:1"])),
        (
            {
                "dnsPolicy": "None",
                "dnsConfig": {
                    "nameservers": ["9.9.9.9"],
                    "searches": ["x"],
                    "options": [{"name": "ndots", "value": "2"}, {"name": "edns0"}],
                },
            },
            (["9.9.9.9"], ["x"], ["ndots:2", "edns0"]),
        ),
    ],
)
def test_how_names_are_resolved(spec: Object, found: Any) -> None:
    obj = pod()
    obj["spec"].update(spec)
    assert names_of(obj, NAMES) == (*found, [])


def test_a_sandbox() -> None:
    obj = pod(init("i", ports=[{"containerPort": 1}]))
    obj["spec"] |= {"hostname": "h" * 70, "hostPID": True, "shareProcessNamespace": True}
    obj["spec"]["containers"][0] |= {
        "ports": [{"containerPort": 80, "hostPort": 8080, "protocol": "UDP"}],
        "securityContext": {"privileged": True},
    }
    found = sandbox_of(obj, NodeSettings("/logs", NODE_BYTES))
    assert found.hostname == "h" * 63
    assert found.log_directory == "/logs/n_p_u"
    assert [(each.number, each.host_port, each.protocol) for each in found.ports] == [
        (1, 0, "TCP"),
        (80, 8080, "UDP"),
    ]
    assert (found.has_host_pids, found.security.is_privileged) == (True, True)


def test_critical_pods() -> None:
    obj = pod()
    assert not is_critical(obj)
    obj["spec"]["priority"] = 2_000_000_000
    assert is_critical(obj)
    assert is_critical(pod(annotations={"kubernetes.io/config.source": "file"}))


@pytest.mark.parametrize(
    ("spec", "shares", "quota", "memory"),
    [
        ({}, 102, 0, 0),
        ({"resources": {"limits": {"cpu": "2", "memory": "1Gi"}}}, 102, 200_000, 1 << 30),
        ({"resources": {"requests": {"cpu": "1"}}}, 1024, 0, 0),
    ],
)
def test_the_limits_of_a_pod(spec: Object, shares: int, quota: int, memory: int) -> None:
    obj: Object = pod()
    obj["spec"] |= spec
    obj["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "100m"}}
    limits = sandbox_of(obj, NodeSettings("/logs", 1 << 30, pids_max=99)).limits
    assert (limits.cpu_shares, limits.cpu_quota_us, limits.memory_bytes) == (shares, quota, memory)
    assert limits.processes == 99


def test_a_node_without_servers_of_names_says_so() -> None:
    found = names_of(pod(), NodeNames(servers=("1.1.1.1",), searches=("host",)))
    assert (found.servers, found.searches) == (["1.1.1.1"], ["host"])
    assert found.problems == [
        (
            "MissingClusterDNS",
            'pod: "p_n(u)". kubelet does not have ClusterDNS IP configured and cannot create Pod '
            'using "ClusterFirst" policy. Falling back to "Default" policy.',
        )
    ]
    obj = pod()
    obj["spec"]["dnsPolicy"] = "Default"
    assert names_of(obj, NodeNames()).problems == []


@pytest.mark.parametrize(
    ("searches", "applied"),
    [
        ([f"s{number}" for number in range(33)], [f"s{number}" for number in range(32)]),
        (["a", "x" * 254, "b"], ["a", "b"]),
        ([f"{number}{'x' * 240}" for number in range(9)], [f"{n}{'x' * 240}" for n in range(8)]),
    ],
)
def test_too_many_domains_are_reported(searches: list[str], applied: list[str]) -> None:
    obj = pod()
    obj["spec"] |= {"dnsPolicy": "None", "dnsConfig": {"searches": searches}}
    found = names_of(obj, NAMES)
    assert found.searches == applied
    text = (
        "Search Line limits were exceeded, some search paths have been omitted, "
        f"the applied search line is: {' '.join(applied)}"
    )
    assert found.problems == [("DNSConfigForming", text)]


def test_too_many_servers_are_reported() -> None:
    obj = pod()
    obj["spec"] |= {"dnsPolicy": "None", "dnsConfig": {"nameservers": ["1", "2", "3", "4"]}}
    found = names_of(obj, NAMES)
    assert found.servers == ["1", "2", "3"]
    text = (
        "Nameserver limits were exceeded, some nameservers have been omitted, "
        "the applied nameserver line is: 1 2 3"
    )
    assert found.problems == [("DNSConfigForming", text)]


def test_amounts_are_compared_and_not_their_texts() -> None:
    same = {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1000m", "memory": "1Gi"}}
    assert qos_of(asking(**same)) == "Guaranteed"
    assert qos_of(asking(requests={"cpu": "0"})) == "BestEffort"


def test_a_sidecar_goes_no_sooner_than_those_it_serves() -> None:
    helper = init("s", restartPolicy="Always")
    obj = pod(helper, names="ab")
    for each, memory in zip(obj["spec"]["containers"], ("4Gi", "1Gi"), strict=True):
        each["resources"] = {"requests": {"memory": memory}}
    scores = [limits_of(obj, each, NODE_BYTES).oom_score for each in obj["spec"]["containers"]]
    assert scores == [500, 875]
    assert limits_of(obj, helper, NODE_BYTES).oom_score == 500
    assert limits_of(obj, init("i"), NODE_BYTES).oom_score == 999


def test_what_a_runtime_needs_beside_containers_counts() -> None:
    obj = asking(**GUARANTEED)
    obj["spec"]["overhead"] = {"cpu": "100m", "memory": "1Mi"}
    found = sandbox_of(obj, NodeSettings("/logs", NODE_BYTES)).limits
    assert (found.cpu_quota_us, found.memory_bytes) == (60_000, (1 << 30) + (1 << 20))
    assert not found.kills_all
    obj["spec"]["containers"][0]["resources"] = {}
    assert sandbox_of(obj, NodeSettings("/logs", NODE_BYTES)).limits.memory_bytes == 0


def test_profiles_stand_in_the_nodes_directory() -> None:
    obj = pod()
    obj["spec"]["securityContext"] = {
        "seccompProfile": {"type": "Localhost", "localhostProfile": "a/b.json"}
    }
    found = security_of(obj, obj["spec"]["containers"][0], seccomp_root="/root/seccomp")
    assert found.seccomp == "/root/seccomp/a/b.json"


@pytest.mark.parametrize(
    ("source", "resources", "size"),
    [
        ({"sizeLimit": "1Mi"}, {}, 1 << 20),
        ({}, {}, 4 << 30),
        ({}, {"limits": {"memory": "1Gi"}}, 1 << 30),
        ({"sizeLimit": "2Gi"}, {"limits": {"memory": "1Gi"}}, 1 << 30),
    ],
)
def test_how_large_a_volume_in_memory_may_be(source: Object, resources: Object, size: int) -> None:
    volume = {"name": "v", "emptyDir": {"medium": "Memory", **source}}
    assert memory_volume_bytes(asking(**resources), volume, {"memory": "4Gi"}) == size


def test_the_whole_name_of_a_host() -> None:
    obj = pod()
    obj["spec"] |= {"hostname": "h", "subdomain": "s", "setHostnameAsFQDN": True}
    found = sandbox_of(obj, NodeSettings("/logs", NODE_BYTES, names=NAMES))
    assert found.hostname == "h.s.n.svc.c.local"
    assert hostname_problem(obj, "c.local") == ""
    assert hostname_problem(obj, "c" * 60) == (
        "failed to construct FQDN from pod hostname and cluster domain, FQDN "
        f"h.s.n.svc.{'c' * 60} is too long (64 characters is the max, 70 characters requested)"
    )
    obj["spec"]["setHostnameAsFQDN"] = False
    assert sandbox_of(obj, NodeSettings("/logs", NODE_BYTES, names=NAMES)).hostname == "h"
