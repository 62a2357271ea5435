"""Services of type LoadBalancer get the addresses of nodes, without a cloud provider.

    service ─► ready nodes ─► status.loadBalancer.ingress     unless another Service has the port

The proxy of every node forwards traffic for these addresses to the Service. A node writes its own
addresses: those that cannot be a machine's, or are in a range of pods, are left out. Services of
another class are ignored. Ports that nodes need for themselves are never assigned, and a port
goes to the oldest Service; the others wait, and an Event names it.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Final

from kvstack.agents.client.built_in import NODES, SERVICES
from kvstack.agents.client.object_store import key_of
from kvstack.agents.controllers.ownership import is_deleting
from kvstack.agents.reconcile.plan import (
    BaseController,
    Identity,
    Plan,
    Record,
    Update,
    View,
    Watch,
    do,
)
from kvstack.apimachinery.objects.core.node_status import is_ready
from kvstack.apimachinery.objects.json_object import Object

CLASS: Final = "kvstack.io/node"
"""The loadBalancerClass of Services that are to be served so."""
EXCLUDED: Final = "node.kubernetes.io/exclude-from-external-load-balancers"
"""The label of nodes whose addresses are not given."""
KEPT_PORTS: Final = frozenset((22, 6443, 10250, 10256))
"""Ports of nodes themselves: remote shell, API server, kubelet, proxy's health."""
_ALL: Final = "all"
_NAME: Final = "service-controller"


class NodeBalancers(BaseController):
    """Gives addresses of nodes."""

    def __init__(self, kept_ports: frozenset[int] = KEPT_PORTS) -> None:
        """kept_ports: never assigned."""
        self._kept_ports = kept_ports
        self.identity: Identity = Identity("node-balancer-controller", _NAME, _NAME)
        # A port that one Service gives up may be another's, and a node concerns all of them.
        self.watches: Sequence[Watch] = (
            Watch(SERVICES, _all_if_balanced),
            Watch(NODES, _all_if_addresses_differ),
        )

    def reconcile(self, key: str, view: View, now_s: float) -> Plan:
        """Return the plan for all Services."""
        services = sorted(view.list(SERVICES), key=_age)
        addresses = _addresses(view.list(NODES))
        taken: dict[tuple[int, str], str] = {}
        for service in services:
            if not _is_ours(service):
                if _ingress(service) and not _is_balanced(service):
                    yield from do(_with_ingress(service, []))
                continue
            reason = self._claim(service, taken)
            wanted = [] if reason else _of_families(addresses, service)
            known = _ingress(service)
            if reason and not known:
                yield [Record(service, "Warning", "SyncLoadBalancerFailed", reason)]
            if wanted != known:
                yield from do(_with_ingress(service, wanted))
                if wanted:
                    text = "Ensured load balancer"
                    yield [Record(service, "Normal", "EnsuredLoadBalancer", text)]
        return None

    def _claim(self, service: Object, taken: dict[tuple[int, str], str]) -> str:
        """Claim the ports of a Service; return why they are not available."""
        wanted = [(each["port"], each.get("protocol", "TCP")) for each in service["spec"]["ports"]]
        for port, protocol in wanted:
            if port in self._kept_ports and protocol == "TCP":
                return f"port {port} is the nodes' own"
            if (port, protocol) in taken:
                return f"port {port}/{protocol} is taken by Service {taken[port, protocol]}"
        taken.update(dict.fromkeys(wanted, key_of(service)))
        return ""


def _is_balanced(service: Object) -> bool:
    return bool(service["spec"].get("type") == "LoadBalancer")


def _is_ours(service: Object) -> bool:
    wanted = service["spec"].get("loadBalancerClass")
    return _is_balanced(service) and wanted in (None, CLASS) and not is_deleting(service)


def _ingress(service: Object) -> list[Object]:
    balancer = (service.get("status") or {}).get("loadBalancer") or {}
    return list(balancer.get("ingress") or ())


def _with_ingress(service: Object, ingress: list[Object]) -> Update:
    status = dict(service.get("status") or {})
    status["loadBalancer"] = {"ingress": ingress} if ingress else {}
    return Update(SERVICES, {**service, "status": status}, "status")


def _age(obj: Object) -> tuple[str, str]:
    return obj["metadata"].get("creationTimestamp") or "", key_of(obj)


def _addresses(nodes: Iterable[Object]) -> list[str]:
    """Return where nodes are reached that can be sent to."""
    addresses: set[str] = set()
    pods: list[IPv4Network | IPv6Network] = []
    for node in sorted(nodes, key=_age):  # ranges of a newer node take nothing from an older one
        status, meta = node.get("status") or {}, node["metadata"]
        pods += _pod_ranges(node)
        if EXCLUDED in (meta.get("labels") or {}) or not is_ready(node):
            continue
        own = _internal_addresses(status)
        addresses.update(each for each in own if not any(ip_address(each) in pod for pod in pods))
    return sorted(addresses)


def _internal_addresses(status: Object) -> list[str]:
    given = status.get("addresses") or ()
    texts = [each.get("address", "") for each in given if each.get("type") == "InternalIP"]
    return [each for each in texts if _is_of_a_machine(each)]


def _is_of_a_machine(text: str) -> bool:
    """Whether an address may be one of a machine that others reach."""
    try:
        address = ip_address(text)
    except ValueError:
        return False
    is_special = (
        address.is_loopback
        or address.is_unspecified
        or address.is_multicast
        or address.is_link_local
        or "%" in text
        or text == "255.255.255.255"
    )
    return not is_special


def _pod_ranges(node: Object) -> Iterator[IPv4Network | IPv6Network]:
    for each in (node.get("spec") or {}).get("podCIDRs") or ():
        with suppress(ValueError):
            yield ip_network(each, strict=False)


def _of_families(addresses: Iterable[str], service: Object) -> list[Object]:
    families = service["spec"].get("ipFamilies") or ["IPv4"]
    return [
        {"ip": each, "ipMode": "VIP"}
        for each in addresses
        if f"IPv{ip_address(each).version}" in families
    ]


def _all_if_balanced(old: Object | None, new: Object | None, _view: View) -> Iterable[str]:
    return (
        (_ALL,)
        if any(each and (_is_balanced(each) or _ingress(each)) for each in (old, new))
        else ()
    )


def _all_if_addresses_differ(old: Object | None, new: Object | None, _view: View) -> Iterable[str]:
    before, after = (_addresses([each] if each else []) for each in (old, new))
    return (_ALL,) if before != after else ()
