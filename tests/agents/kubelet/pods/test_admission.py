"""What a node refuses."""

from typing import Any

import pytest

from kvstack.agents.kubelet.pods.admission import refusal, victims
from kvstack.apimachinery.objects.json_object import Object
from tests.agents.kubelet.pods.test_worker import pod

NODE = {
    "metadata": {"name": "n", "labels": {"zone": "a"}},
    "status": {
        "allocatable": {"cpu": "2", "memory": "1Gi", "pods": "3"},
        "conditions": [{"type": "Ready", "status": "True"}],
    },
}


def requesting(cpu: str, **spec: Any) -> Object:
    obj: Object = pod()
    obj["spec"]["containers"][0]["resources"] = {"requests": {"cpu": cpu}}
    obj["spec"].update(spec)
    return obj


def refused(obj: Object, *others: Object, lacks: str = "", **node: Any) -> tuple[str, str] | None:
    return refusal(obj, {**NODE, **node}, others, lambda field: field == lacks)


@pytest.mark.parametrize(
    ("spec", "of_container", "lacks", "text"),
    [
        ({"hostUsers": False}, {}, "hostUsers", "spec.hostUsers: false"),
        (
            {"securityContext": {"seccompProfile": {"type": "RuntimeDefault"}}},
            {},
            "RuntimeDefault",
            "spec.securityContext.seccompProfile: RuntimeDefault",
        ),
        ({"runtimeClassName": "x"}, {}, "runtimeClassName", "spec.runtimeClassName"),
        (
            {"securityContext": {"seLinuxOptions": {"level": "x"}}},
            {},
            "seLinuxOptions",
            "spec.securityContext.seLinuxOptions",
        ),
        (
            {},
            {"securityContext": {"procMount": "Unmasked"}},
            "procMount",
            'container "a": securityContext.procMount',
        ),
        (
            {},
            {"resources": {"limits": {"memory": "1Gi"}}},
            "limits",
            'container "a": resources.limits',
        ),
    ],
)
def test_what_a_runtime_does_not_do_is_refused(
    spec: Object, of_container: Object, lacks: str, text: str
) -> None:
    obj = pod()
    obj["spec"].update(spec)
    obj["spec"]["containers"][0].update(of_container)
    assert refused(obj) is None
    message = f"{text} is not supported by the runtime of this node"
    assert refused(obj, lacks=lacks) == ("PodFeatureUnsupported", message)
    ignoring = refusal(obj, NODE, (), lambda field: field == lacks, ignores_limits=True)
    assert (ignoring is None) == (lacks == "limits")


def test_volumes_that_no_runtime_has() -> None:
    obj = pod()
    obj["spec"]["volumes"] = [{"name": "v", "nfs": {}}]
    reason, message = refused(obj) or ("", "")
    assert reason == "PodFeatureUnsupported"
    assert message.startswith('volume "v": nfs is not supported')


def test_what_does_not_fit() -> None:
    text = "Node didn't have enough resource: cpu, requested: 1500, used: 1000, capacity: 2000"
    assert refused(requesting("1500m"), requesting("1")) == ("OutOfcpu", text)
    ended = {**requesting("1"), "status": {"phase": "Succeeded"}}
    assert refused(requesting("1500m"), ended) is None
    others = [requesting("0")] * 3
    text = "Node didn't have enough resource: pods, requested: 1, used: 3, capacity: 3"
    assert refused(requesting("0"), *others) == ("OutOfpods", text)


def test_init_containers_count_as_far_as_they_are_above_the_others() -> None:
    inits = [
        {
            "name": "s",
            "image": "x",
            "restartPolicy": "Always",
            "resources": {"requests": {"cpu": "1"}},
        },
        {"name": "i", "image": "x", "resources": {"requests": {"cpu": "1500m"}}},
    ]
    reason, message = refused(requesting("500m", initContainers=inits)) or ("", "")
    assert reason == "OutOfcpu"
    assert "requested: 2500" in message


def test_labels_ports_systems_and_sysctls() -> None:
    assert refused(requesting("1", nodeSelector={"zone": "a"})) is None
    assert (refused(requesting("1", nodeSelector={"zone": "b"})) or ("",))[0] == "NodeAffinity"
    assert (refused(requesting("1", os={"name": "windows"})) or ("",))[0] == "PodOSNotSupported"
    obj = requesting("0")
    obj["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 80}]
    assert refused(obj) is None
    assert (refused(obj, obj) or ("",))[0] == "NodePorts"
    unsafe = requesting("0", securityContext={"sysctls": [{"name": "kernel.x", "value": "1"}]})
    text = 'forbidden sysctl: "kernel.x" not allowlisted'
    assert refused(unsafe) == ("SysctlForbidden", text)


def test_a_node_under_pressure_takes_no_pods_that_ask_for_nothing() -> None:
    pressed = {"type": "MemoryPressure", "status": "True"}
    status = {"allocatable": {"pods": "3"}, "conditions": [pressed]}
    text = "The node had condition: [MemoryPressure]. "
    assert refused(pod(), status=status) == ("Evicted", text)
    assert refused(requesting("1m"), status=status) is None
    taint = "node.kubernetes.io/memory-pressure"
    for toleration, is_refused in (
        ({"key": taint, "operator": "Exists"}, False),
        ({"operator": "Exists", "effect": "NoSchedule"}, False),
        ({"key": taint, "operator": "Exists", "effect": "NoExecute"}, True),
        ({"key": taint, "operator": "Equal", "value": "x"}, True),
    ):
        tolerating = pod()
        tolerating["spec"]["tolerations"] = [toleration]
        assert bool(refused(tolerating, status=status)) is is_refused, toleration
    critical = pod()
    critical["spec"]["priority"] = 2_000_000_000
    assert refused(critical, status=status) is None
    full = {**status, "conditions": [{"type": "DiskPressure", "status": "True"}]}
    assert (refused(requesting("1m"), status=full) or ("",))[0] == "Evicted"


def test_required_affinity() -> None:
    expression = {"key": "zone", "operator": "In", "values": ["a"]}
    term = {"matchExpressions": [expression]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    obj = requesting("0", affinity={"nodeAffinity": required})
    assert refused(obj) is None
    expression["operator"] = "NotIn"
    text = "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"
    assert refused(obj) == ("NodeAffinity", text)


def test_taints_that_let_nothing_run() -> None:
    taint = {"key": "k", "value": "v", "effect": "NoExecute"}
    node: dict[str, Any] = {"spec": {"taints": [taint, {"key": "new", "effect": "NoSchedule"}]}}
    text = "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate"
    assert refused(pod(), **node) == ("TaintToleration", text)
    tolerating = requesting("0", tolerations=[{"key": "k", "operator": "Exists"}])
    assert refused(tolerating, **node) is None
    static = pod(annotations={"kubernetes.io/config.source": "file"})
    assert refused(static, **node) is None


def test_the_same_port_at_two_addresses() -> None:
    def showing(ip: str) -> Object:
        obj = requesting("0")
        ports = [{"containerPort": 80, "hostPort": 80, "hostIP": ip}]
        obj["spec"]["containers"][0]["ports"] = ports
        return obj

    assert refused(showing("10.0.0.1"), showing("10.0.0.2")) is None
    assert (refused(showing("10.0.0.1"), showing("")) or ("",))[0] == "NodePorts"


def test_who_makes_room_for_a_critical_pod() -> None:
    def of(name: str, asked: str, **limits: str) -> Object:
        obj = requesting(asked, priority=0)
        obj["metadata"]["uid"] = name
        obj["spec"]["containers"][0]["resources"]["limits"] = limits
        return obj

    small, large = of("small", "500m"), of("large", "1")
    sure = of("sure", "500m", cpu="500m", memory="1Mi")
    sure["spec"]["containers"][0]["resources"]["requests"]["memory"] = "1Mi"
    idle = pod()
    node = {"metadata": {}, "status": {"allocatable": {"cpu": "2", "pods": "10"}}}
    others = [sure, large, small, idle]
    # Idle ones have none of what is missing, and the small one is enough.
    assert victims(requesting("500m"), node, others) == [small]
    assert victims(requesting("1"), node, others) == [large]
    assert victims(requesting("1500m"), node, others) == [large, small]
    assert victims(requesting("2"), node, others) == [large, small, sure]
    assert victims(requesting("3"), node, others) is None
    assert victims(requesting("0"), node, others) == []


@pytest.mark.parametrize(
    ("spec", "lacks", "found"),
    [
        (
            {"nodeSelector": {"kubernetes.io/os": "windows"}},
            "",
            (
                "PodOSSelectorNodeLabelDoesNotMatch",
                "Failed to admit pod as the `kubernetes.io/os` label doesn't match node label",
            ),
        ),
        (
            {"securityContext": {"supplementalGroupsPolicy": "Strict"}},
            "supplementalGroupsPolicy",
            (
                "SupplementalGroupsPolicyNotSupported",
                "SupplementalGroupsPolicy=Strict is not supported in this node",
            ),
        ),
        ({"securityContext": {"supplementalGroupsPolicy": "Strict"}}, "", None),
    ],
)
def test_systems_and_groups(spec: Object, lacks: str, found: tuple[str, str] | None) -> None:
    obj: Object = pod()
    obj["spec"].update(spec)
    labels = {"metadata": {"labels": {"zone": "a", "kubernetes.io/os": "linux"}}}
    assert refused(obj, lacks=lacks, **labels) == found


@pytest.mark.parametrize(
    ("name", "spec", "allowed", "problem"),
    [
        ("net.core.somaxconn", {}, (), "not allowlisted"),
        ("net.core.somaxconn", {}, ("net.core.*",), ""),
        ("kernel.msgmax", {}, ("kernel.msgmax",), ""),
        ("kernel.msgmax", {"hostIPC": True}, ("kernel.msgmax",), "not allowed with host ipc"),
        ("net.ipv4.tcp_syncookies", {}, (), ""),
        ("net/ipv4/tcp_syncookies", {}, (), ""),
        ("net.ipv4.tcp_syncookies", {"hostNetwork": True}, (), "not allowed with host net enabled"),
    ],
)
def test_settings_of_the_kernel(
    name: str, spec: Object, allowed: tuple[str, ...], problem: str
) -> None:
    obj: Object = pod()
    obj["spec"] |= {**spec, "securityContext": {"sysctls": [{"name": name, "value": "1"}]}}
    found = refusal(obj, NODE, (), lambda _field: False, allowed_sysctls=allowed)
    assert (found is None) == (problem == "")
    if found is not None:
        assert found[0] == "SysctlForbidden"
        assert found[1].startswith(f'forbidden sysctl: "{name}" {problem}')


def test_static_pods_come_also_under_pressure() -> None:
    short = {
        "allocatable": {"pods": "3"},
        "conditions": [{"type": "DiskPressure", "status": "True"}],
    }
    assert (refused(pod(), status=short) or ("",))[0] == "Evicted"
    static = pod(annotations={"kubernetes.io/config.source": "file"})
    assert refused(static, status=short) is None
