"""NetworkPolicies, judged straight from the objects for one connection: slow, and plain to read."""

from collections.abc import Iterator, Sequence
from ipaddress import ip_address, ip_network
from typing import NamedTuple

from kvstack.apimachinery.objects.json_object import Object


class Connection(NamedTuple):
    """One connection; source and target are addresses."""

    source: str
    target: str
    protocol: str
    port: int


def has_address(pod: Object, address: str) -> bool:
    is_alive = pod["status"].get("phase") not in ("Succeeded", "Failed")
    own = [each["ip"] for each in pod["status"].get("podIPs", ())]
    return is_alive and not pod["spec"].get("hostNetwork") and address in own


def matches(selector: Object, labels: dict[str, str]) -> bool:
    if any(labels.get(key) != value for key, value in selector.get("matchLabels", {}).items()):
        return False
    for each in selector.get("matchExpressions", ()):
        value, operator = labels.get(each["key"]), each["operator"]
        if operator == "In" and value not in each["values"]:
            return False
        if operator == "NotIn" and value in each["values"]:
            return False
        if operator == "Exists" and value is None:
            return False
        if operator == "DoesNotExist" and value is not None:
            return False
    return True


class World(NamedTuple):
    """All objects."""

    namespaces: Sequence[Object]
    pods: Sequence[Object]
    policies: Sequence[Object]

    def pods_at(self, address: str) -> Iterator[Object]:
        return (each for each in self.pods if has_address(each, address))

    def allows(self, it: Connection) -> bool:
        """Whether both sides let a connection be."""
        if it.source == it.target:
            return True
        return self.side_allows("egress", it) and self.side_allows("ingress", it)

    def side_allows(self, direction: str, it: Connection) -> bool:
        own, other = (it.source, it.target) if direction == "egress" else (it.target, it.source)
        for pod in self.pods_at(own):
            isolating = [
                policy
                for policy in self.policies
                if policy["metadata"]["namespace"] == pod["metadata"]["namespace"]
                and direction in types_of(policy)
                and matches(policy["spec"].get("podSelector", {}), labels_of(pod))
            ]
            if isolating:
                return any(
                    self._rule_allows(policy, rule, direction, other, it)
                    for policy in isolating
                    for rule in policy["spec"].get(direction) or ()
                )
        return True

    def _rule_allows(
        self, policy: Object, rule: Object, direction: str, other: str, it: Connection
    ) -> bool:
        peers = rule.get("to" if direction == "egress" else "from")
        if peers and not any(self._is_peer(policy, peer, other) for peer in peers):
            return False
        ports = rule.get("ports")
        return not ports or any(self._is_port(each, it) for each in ports)

    def _is_peer(self, policy: Object, peer: Object, address: str) -> bool:
        if block := peer.get("ipBlock"):
            own = ip_address(address)
            return own in ip_network(block["cidr"]) and not any(
                own in ip_network(each) for each in block.get("except", ())
            )
        for pod in self.pods_at(address):
            where = pod["metadata"]["namespace"]
            if peer.get("namespaceSelector") is None:
                is_there = where == policy["metadata"]["namespace"]
            else:
                labels = next(
                    (labels_of(e) for e in self.namespaces if e["metadata"]["name"] == where), {}
                )
                is_there = matches(peer["namespaceSelector"], labels)
            if is_there and matches(peer.get("podSelector") or {}, labels_of(pod)):
                return True
        return False

    def _is_port(self, port: Object, it: Connection) -> bool:
        protocol = port.get("protocol", "TCP")
        if protocol != it.protocol:
            return False
        number = port.get("port")
        if number is None:
            return True
        if isinstance(number, int):
            return bool(number <= it.port <= port.get("endPort", number))
        return any(
            each.get("name") == number
            and each["containerPort"] == it.port
            and each.get("protocol", "TCP") == protocol
            for pod in self.pods_at(it.target)
            for container in pod["spec"]["containers"]
            for each in container.get("ports", ())
        )


def labels_of(obj: Object) -> dict[str, str]:
    return obj["metadata"].get("labels") or {}


def types_of(policy: Object) -> list[str]:
    given = policy["spec"].get("policyTypes")
    if not given:
        given = ["Ingress", *(["Egress"] if policy["spec"].get("egress") else [])]
    return [each.lower() for each in given]
