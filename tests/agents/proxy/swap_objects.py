"""The Services of the swap tests, and what packets to them are expected to do."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from kvstack.apimachinery.objects.json_object import Object
from tests.agents.proxy.objects import endpoint, endpoint_slice

HERE, THERE = "here", "there"
PORT: Final = 8080
ONE, TWO = "one", "two"
CLIENT, NODE = "client", "node"
REFUSED, SILENT = "refused", "silent"
VIRTUAL, EXTERNAL, RESTRICTED = "203.0.113.7", "198.51.100.4", "203.0.113.8"
HEALTH_PORT: Final = 32_000
SILENT_HEALTH_PORT: Final = 32_001

NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


class Case(NamedTuple):
    """One Service: its endpoints, and who is answered by whom."""

    name: str
    ends: tuple[tuple[str, str, str], ...]
    """Pod, node and conditions of each endpoint, as `objects.endpoint` has them."""
    expected: dict[str, str]
    """By client and target (`client ip`, `one port`): who answers, and whom they see."""
    spec: Mapping[str, Any] = NOTHING
    status: Mapping[str, Any] = NOTHING
    protocol: str = "TCP"
    hints: Mapping[str, Object] = NOTHING
    """By pod: the hints of its endpoint."""


BOTH = ((ONE, HERE, ""), (TWO, HERE, ""))
APART = ((ONE, HERE, ""), (TWO, THERE, ""))
EITHER = "one sees node, two sees node"
LOCAL: Final = {"type": "NodePort", "externalTrafficPolicy": "Local"}

CASES: Final = (
    Case(
        "plain",
        BOTH,
        {
            "client ip": EITHER,
            "one ip": "one sees node, two sees one",  # a pod that reaches itself is hidden
            "node ip": EITHER,
        },
    ),
    Case("port", BOTH, {"client port": EITHER, "node port": EITHER}, {"type": "NodePort"}),
    Case("udp", ((TWO, HERE, ""),), {"client ip": "two sees node"}, protocol="UDP"),
    Case("itself", ((ONE, HERE, ""),), {"one ip": "one sees node", "two ip": "one sees two"}),
    Case(
        "empty",
        (),
        {"client ip": REFUSED, "client port": REFUSED, "node ip": REFUSED},
        {"type": "NodePort"},
    ),
    Case("unready", ((ONE, HERE, "not ready"),), {"client ip": REFUSED}),
    Case("sticky", BOTH, {"client ip": "one of them"}, {"sessionAffinity": "ClientIP"}),
    Case(
        "outside-local",
        APART,
        {
            "client port": "one sees client",
            "client ip": EITHER,
            "two port": "one sees two, two sees node",  # pods are not bound by the policy
            "node port": EITHER,
        },
        LOCAL,
    ),
    Case(
        "outside-elsewhere",
        ((TWO, THERE, ""),),
        {"client port": SILENT, "one port": "two sees one"},
        LOCAL,
    ),
    Case(
        "inside-local",
        APART,
        {"client ip": "one sees node", "two ip": "one sees two"},
        {"internalTrafficPolicy": "Local"},
    ),
    Case(
        "inside-elsewhere",
        ((TWO, THERE, ""),),
        {"client ip": SILENT},
        {"internalTrafficPolicy": "Local"},
    ),
    Case(
        "draining",
        ((ONE, HERE, ""), (TWO, HERE, "draining")),
        {"client ip": "one sees node"},
    ),
    Case("all-draining", ((TWO, HERE, "draining"),), {"client ip": "two sees node"}),
    Case(
        "draining-local",
        ((ONE, HERE, "draining"), (TWO, THERE, "")),
        {"client port": "one sees client", "client ip": "two sees node"},
        LOCAL,
    ),
    Case(
        "on-this-node",
        APART,
        {"client ip": "one sees node"},
        {"trafficDistribution": "PreferSameNode"},
        hints={
            ONE: {"forNodes": [{"name": HERE}], "forZones": [{"name": "a"}]},
            TWO: {"forNodes": [{"name": THERE}], "forZones": [{"name": "a"}]},
        },
    ),
    Case(
        "balanced",
        BOTH,
        {f"client {VIRTUAL}": EITHER, f"client {EXTERNAL}": EITHER},
        {"type": "LoadBalancer", "externalIPs": [EXTERNAL]},
        {"loadBalancer": {"ingress": [{"ip": VIRTUAL, "ipMode": "VIP"}]}},
    ),
    Case(
        "restricted",
        BOTH,
        {f"client {RESTRICTED}": EITHER, f"one {RESTRICTED}": SILENT},
        {"type": "LoadBalancer", "loadBalancerSourceRanges": ["10.201.1.0/24"]},
        {"loadBalancer": {"ingress": [{"ip": RESTRICTED, "ipMode": "VIP"}]}},
    ),
    Case(
        "healthy",
        APART,
        {},
        {
            "type": "LoadBalancer",
            "externalTrafficPolicy": "Local",
            "healthCheckNodePort": HEALTH_PORT,
        },
    ),
    Case(
        "unhealthy",
        ((TWO, THERE, ""),),
        {},
        {
            "type": "LoadBalancer",
            "externalTrafficPolicy": "Local",
            "healthCheckNodePort": SILENT_HEALTH_PORT,
        },
    ),
    Case("headless", BOTH, {}, {"clusterIP": "None"}),
)
CHANGED: Final = (
    Case("plain", ((TWO, HERE, ""),), {"client ip": "two sees node"}),
    Case("udp", ((ONE, HERE, ""),), {"client ip": "one sees node"}, protocol="UDP"),
    Case("port", (), {"client port": REFUSED}, {"type": "NodePort"}),
    Case("empty", ((ONE, HERE, ""),), {"client port": "one sees node"}, {"type": "NodePort"}),
)
"""The same Services with other endpoints."""


def number_of(name: str) -> int:
    """Return what tells a Service's addresses and ports from others'."""
    return 20 + [each.name for each in CASES].index(name)


def cluster_ip(name: str) -> str:
    return f"10.96.0.{number_of(name)}"


def node_port(name: str) -> int:
    return 30_000 + number_of(name)


def service(case: Case) -> Object:
    """Return the Service of a case, without its status."""
    spec: dict[str, Any] = {"clusterIP": cluster_ip(case.name), **case.spec}
    port: Object = {"port": 80, "protocol": case.protocol, "targetPort": PORT}
    if spec.get("type", "ClusterIP") != "ClusterIP":
        port["nodePort"] = node_port(case.name)
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": case.name, "namespace": "default"},
        "spec": {**spec, "ports": [port]},
    }


def slice_of(case: Case, addresses: Mapping[str, str]) -> Object:
    """Return the slice of a case; addresses: of pods."""
    ends = []
    for pod, node, conditions in case.ends:
        more = {"hints": case.hints[pod]} if pod in case.hints else {}
        ends.append(endpoint(addresses[pod], node, conditions, **more))
    made = endpoint_slice(
        *ends, name=f"{case.name}-1", of=case.name, port=PORT, protocol=case.protocol
    )
    labels = made["metadata"]["labels"]
    made["metadata"] = {"name": f"{case.name}-1", "namespace": "default", "labels": labels}
    return made


def node(name: str, address: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"topology.kubernetes.io/zone": "a"}},
        "spec": {"podCIDR": "10.201.2.0/23"} if name == HERE else {},
        "status": {"addresses": [{"type": "InternalIP", "address": address}]},
    }
