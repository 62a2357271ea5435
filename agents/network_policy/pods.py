"""What of a pod matters to policies: its labels, addresses and named ports."""

from collections.abc import Mapping
from typing import NamedTuple

from kvstack.agents.network_policy.policies import PortName
from kvstack.apimachinery.objects.addresses import format_ip, parse_ip
from kvstack.apimachinery.objects.core.pod_resources import is_sidecar
from kvstack.apimachinery.objects.core.pod_status import is_ended
from kvstack.apimachinery.objects.json_object import Object


class PodFacts(NamedTuple):
    """A pod as policies see it."""

    namespace: str
    labels: Mapping[str, str]
    addresses: tuple[str, ...] = ()
    """In the canonical form; none: it is nobody's peer."""
    ports: frozenset[tuple[PortName, int]] = frozenset()


def facts_of(pod: Object) -> PodFacts:
    """Return what the API says of a pod; one that ended or shares its node's has no address."""
    meta, spec, status = pod["metadata"], pod["spec"], pod.get("status") or {}
    texts: list[str] = []
    if not spec.get("hostNetwork") and not is_ended(pod):
        texts = [each.get("ip") or "" for each in status.get("podIPs") or ()]
        texts = texts or [status.get("podIP") or ""]
    return PodFacts(
        meta["namespace"], meta.get("labels") or {}, _canonical(texts), _named_ports(spec)
    )


def _canonical(texts: list[str]) -> tuple[str, ...]:
    parsed = (parse_ip(each) for each in texts)
    return tuple(dict.fromkeys(format_ip(each) for each in parsed if each is not None))


def _named_ports(spec: Object) -> frozenset[tuple[PortName, int]]:
    """Return the ports with names; those of init containers count if these run beside."""
    containers = [
        *(spec.get("containers") or ()),
        *filter(is_sidecar, spec.get("initContainers") or ()),
    ]
    return frozenset(
        (PortName(port["name"], port.get("protocol") or "TCP"), port["containerPort"])
        for container in containers
        for port in container.get("ports") or ()
        if port.get("name")
    )
