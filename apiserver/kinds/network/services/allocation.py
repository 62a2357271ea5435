"""Allocation of cluster IPs and node ports by writes of a Service.

    created   join cluster IPs → families → addresses → node ports → health check port
    changed   keep what was allocated → as above, and what is no longer needed is released
    deleted   all it has is released

`allocate_create` and `allocate_update` change the given object and return an `Allocation`: what is
claimed and released in the transaction that writes the Service. They run before preparation and
validation; the Allocation of a Service that is then refused is dropped. If nothing can be allocated
they raise ApiError.
"""

from collections.abc import Container, Sequence
from dataclasses import dataclass, field

from kvstack.apimachinery.objects.addresses import format_ip, parse_ip
from kvstack.apimachinery.objects.field_errors import FieldError, child, index, invalid
from kvstack.apimachinery.objects.groups import GroupKind
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError, internal_error, unknown
from kvstack.apimachinery.objects.status import invalid as refused
from kvstack.apimachinery.objects.text.go_text import quote
from kvstack.apiserver.allocators import cluster_ips as addresses
from kvstack.apiserver.allocators import node_ports as ports
from kvstack.apiserver.allocators.bands import RandomBelow
from kvstack.apiserver.allocators.cluster_ips import AddressRange
from kvstack.apiserver.allocators.node_ports import PortClaims
from kvstack.apiserver.kinds.network.services.families import (
    fill_families,
    init_families,
    keeps_preferred,
)
from kvstack.apiserver.kinds.network.services.traits import (
    LOAD_BALANCER,
    NODE_PORT,
    NONE,
    Spec,
    cluster_ips,
    has_node_ports,
    ip_families,
    is_external_name,
    needs_health_check,
    node_ports,
    same_cluster_ips,
    type_of,
)
from kvstack.component.net.port_range import PortRange


@dataclass(slots=True)
class Pools:
    """A snapshot of the ranges of the cluster and their use."""

    families: Sequence[str]
    """The families of the server's flags, the default one first."""
    ranges: Sequence[AddressRange]
    taken_addresses: Container[str]
    """The names of existing IPAddress objects."""
    port_range: PortRange
    taken_ports: int
    """The bitmap of the stored RangeAllocation."""
    random_below: RandomBelow

    def port_claims(self, *, is_dry_run: bool) -> PortClaims:
        """Return an empty set of node port claims."""
        return PortClaims(
            self.port_range, self.taken_ports, self.random_below, is_dry_run=is_dry_run
        )


@dataclass(slots=True)
class Allocation:
    """The claims and releases of one write of a Service."""

    ports: PortClaims
    claimed_addresses: list[str] = field(default_factory=list)
    """Canonical texts; each becomes an IPAddress object."""
    released_addresses: list[str] = field(default_factory=list)


def allocate_create(obj: Object, pools: Pools, *, is_dry_run: bool = False) -> Allocation:
    """Allocate addresses and ports of a new Service."""
    spec: Spec = obj["spec"]
    if spec.get("clusterIP") and not cluster_ips(spec):
        spec["clusterIPs"] = [spec["clusterIP"]]
    write = _Write(obj, None, pools, is_dry_run=is_dry_run)
    write.set_families()
    write.claim_addresses()
    if has_node_ports(spec):
        write.claim_new_ports()
    if needs_health_check(spec):
        write.claim_health_port()
    return write.allocation


def allocate_update(
    new: Object, old: Object, pools: Pools, *, is_dry_run: bool = False
) -> Allocation:
    """Allocate what a changed Service needs in addition, and release what it no longer needs."""
    spec, old_spec = new["spec"], _filled_spec(old, pools)
    _keep_allocated(spec, old_spec)
    _join_cluster_ips(spec, old_spec)
    write = _Write(new, old_spec, pools, is_dry_run=is_dry_run)
    write.set_families()
    write.change_addresses(old_spec)
    write.change_ports(old_spec)
    write.change_health_port(old_spec)
    return write.allocation


def release_all(obj: Object, pools: Pools) -> Allocation:
    """Release everything of a deleted Service."""
    spec = _filled_spec(obj, pools)
    allocation = Allocation(pools.port_claims(is_dry_run=False))
    if not is_external_name(spec) and cluster_ips(spec)[:1] != [NONE]:
        allocation.released_addresses.extend(map(_canonical, cluster_ips(spec)))
    for port in node_ports(spec):
        allocation.ports.release(port)
    if needs_health_check(spec) and spec.get("healthCheckNodePort"):
        allocation.ports.release(spec["healthCheckNodePort"])
    return allocation


def _filled_spec(stored: Object, pools: Pools) -> Spec:
    """Return the spec of a stored Service, which others read too, with all its fields."""
    spec: Spec = {**stored["spec"]}
    fill_stored({**stored, "spec": spec}, pools.families[0])
    return spec


def fill_stored(obj: Object, primary_family: str) -> None:
    """Set fields that a Service stored by an older version lacks; done on every read."""
    spec: Spec = obj["spec"]
    if spec.get("clusterIP") and not cluster_ips(spec):
        spec["clusterIPs"] = [spec["clusterIP"]]
    fill_families(spec, primary_family)
    if is_external_name(spec):
        spec.pop("internalTrafficPolicy", None)


def _keep_allocated(spec: Spec, old: Spec) -> None:
    """Restore allocations that the client left out, so that it may send the same manifest again."""
    if not is_external_name(spec) and not is_external_name(old):
        for each in ("clusterIP", "clusterIPs"):
            if not spec.get(each) and old.get(each):
                spec[each] = old[each]
    if _needs_node_ports(spec) and _needs_node_ports(old):
        used = set(node_ports(spec)) & set(node_ports(old))
        by_name = {each.get("name", ""): each.get("nodePort", 0) for each in old.get("ports") or ()}
        for port in spec.get("ports") or ():
            number = by_name.get(port.get("name", ""), 0)
            if number and not port.get("nodePort") and number not in used:
                port["nodePort"] = number
    if needs_health_check(spec) and needs_health_check(old):
        number = old.get("healthCheckNodePort", 0)
        if number and not spec.get("healthCheckNodePort"):
            spec["healthCheckNodePort"] = number


def _join_cluster_ips(spec: Spec, old: Spec) -> None:
    """Make clusterIP and clusterIPs agree where the client changed only one of them."""
    single, before = spec.get("clusterIP", ""), old.get("clusterIP", "")
    if single == before:
        if cluster_ips(old) and not cluster_ips(spec):
            spec["clusterIPs"] = cluster_ips(old)
    elif same_cluster_ips(spec, old):
        if single:
            spec["clusterIPs"] = [single]
        else:
            spec.pop("clusterIPs", None)


def _needs_node_ports(spec: Spec) -> bool:
    """Return whether every port gets a node port."""
    if type_of(spec) == LOAD_BALANCER:
        return spec.get("allocateLoadBalancerNodePorts") is not False
    return type_of(spec) == NODE_PORT


class _Write:
    """One write of a Service; the methods are called in order, each at most once."""

    __slots__ = ("_name", "_old", "_pools", "_spec", "allocation")

    def __init__(self, obj: Object, old: Spec | None, pools: Pools, *, is_dry_run: bool) -> None:
        self._name: str = obj["metadata"].get("name", "")
        self._spec: Spec = obj["spec"]
        self._old = old
        self._pools = pools
        self.allocation = Allocation(pools.port_claims(is_dry_run=is_dry_run))

    def set_families(self) -> None:
        """Set policy and families."""
        errors = init_families(self._spec, self._old, self._pools.families)
        if errors:
            raise self._invalid(*errors)

    def claim_addresses(self) -> None:
        """Claim an address of each family for a Service without one."""
        spec = self._spec
        if is_external_name(spec) or cluster_ips(spec)[:1] == [NONE]:
            return
        families = ip_families(spec)
        ips = cluster_ips(spec)
        spec["clusterIPs"] = ips = ips + [""] * (len(families) - len(ips))
        for position, family in enumerate(families):
            ips[position] = self._claim_address(family, ips[position])
        if ips:
            spec["clusterIP"] = ips[0]

    def change_addresses(self, old: Spec) -> None:
        """Claim or release addresses for a change of type or of the number of families."""
        spec = self._spec
        if keeps_preferred(spec, old):
            return
        if is_external_name(old):
            self.claim_addresses()
        elif cluster_ips(old)[:1] == [NONE]:
            return
        elif is_external_name(spec):
            self._release(cluster_ips(old))
        elif len(ip_families(old)) == 1 and len(ip_families(spec)) == 2:
            ips = cluster_ips(spec)
            spec["clusterIPs"] = ips = ips + [""] * (2 - len(ips))
            ips[1] = self._claim_address(ip_families(spec)[1], ips[1])
        elif len(ip_families(old)) == 2 and len(ip_families(spec)) == 1:
            self._release(cluster_ips(old)[1:2])

    def claim_new_ports(self) -> None:
        """Claim the node ports of a new Service; equal port numbers share one."""
        chosen: dict[int, int] = {}
        service_ports: list[Object] = self._spec.get("ports") or []
        for position, port in enumerate(service_ports):
            number, requested = port.get("port", 0), port.get("nodePort", 0)
            if not requested and not _needs_node_ports(self._spec):
                continue
            if number not in chosen:
                chosen[number] = self._claim_for(position, number, service_ports)
                port["nodePort"] = chosen[number]
            elif not requested:
                port["nodePort"] = chosen[number]
            elif requested != chosen[number]:
                self._claim_port(position, requested)

    def change_ports(self, old: Spec) -> None:
        """Claim the additional node ports of a changed Service, release those it no longer has."""
        spec = self._spec
        before = node_ports(old)
        if not has_node_ports(spec):
            if has_node_ports(old):
                self.allocation.ports.released.extend(before)
            return
        seen: set[tuple[str, int]] = set()
        kept_ports = set(before)
        for position, port in enumerate(spec.get("ports") or ()):
            requested = port.get("nodePort", 0)
            if not requested:
                if not _needs_node_ports(spec):
                    continue
                port["nodePort"] = self._any_port()
            elif requested not in kept_ports:
                self._claim_port(position, requested)
                kept_ports.add(requested)
            pair = (port.get("protocol", ""), port["nodePort"])
            if pair in seen:
                raise unknown(f"duplicate nodePort: {{{pair[0]} {pair[1]}}}")
            seen.add(pair)
        after = node_ports(spec)
        for each in before:
            if each not in after:
                self.allocation.ports.release(each)

    def claim_health_port(self) -> None:
        """Claim the health check node port."""
        asked = self._spec.get("healthCheckNodePort", 0)
        if asked:
            problem = self.allocation.ports.claim(asked)
            if problem:
                text = f"failed to allocate requested HealthCheck NodePort {asked}: {problem}"
                raise internal_error(text)
            return
        port = self.allocation.ports.claim_any()
        if port is None:
            raise internal_error(f"failed to allocate a HealthCheck NodePort 0: {ports.FULL}")
        self._spec["healthCheckNodePort"] = port

    def change_health_port(self, old: Spec) -> None:
        """Claim or release the health check node port, as a change requires."""
        if needs_health_check(self._spec):
            if not needs_health_check(old):
                self.claim_health_port()
        elif needs_health_check(old):
            self.allocation.ports.release(old.get("healthCheckNodePort", 0))

    def _claim_address(self, family: str, requested: str) -> str:
        pools, is_dry_run = self._pools, self.allocation.ports.is_dry_run
        if not requested:
            chosen = (
                addresses.dry_address(pools.ranges, family)
                if is_dry_run
                else addresses.choose_address(
                    pools.ranges, family, pools.taken_addresses, pools.random_below
                )
            )
            if chosen is None:
                raise self._no_address(family)
            self.allocation.claimed_addresses.append(chosen)
            return chosen
        address = _canonical(requested)
        problem = (
            addresses.refuse_address_dry(pools.ranges, address)
            if is_dry_run
            else addresses.refuse_address(pools.ranges, address, pools.taken_addresses)
        )
        if problem:
            detail = f"failed to allocate IP {requested}: {problem}"
            raise self._invalid(invalid("spec.clusterIPs", cluster_ips(self._spec), detail))
        self.allocation.claimed_addresses.append(address)
        return requested

    def _no_address(self, family: str) -> ApiError:
        ranges = [each for each in self._pools.ranges if each.family == family]
        if self.allocation.ports.is_dry_run and not any(each.is_ready for each in ranges):
            detail = f"failed to allocate IP: {addresses.NOT_READY}"
            return self._invalid(invalid("spec.clusterIPs", cluster_ips(self._spec), detail))
        return internal_error(
            f"failed to allocate a serviceIP for Service {quote(self._name)}: {addresses.FULL}"
        )

    def _claim_for(self, position: int, number: int, service_ports: Sequence[Object]) -> int:
        """Claim the node port that any port of that number requests, or a free one."""
        for each in service_ports:
            if each.get("port", 0) == number and each.get("nodePort"):
                asked: int = each["nodePort"]
                self._claim_port(position, asked)
                return asked
        return self._any_port()

    def _claim_port(self, position: int, port: int) -> None:
        problem = self.allocation.ports.claim(port)
        if problem:
            path = child(index("spec.ports", position), "nodePort")
            raise self._invalid(invalid(path, port, problem))

    def _any_port(self) -> int:
        port = self.allocation.ports.claim_any()
        if port is None:
            raise internal_error(f"failed to allocate a nodePort: {ports.FULL}")
        return port

    def _release(self, ips: Sequence[str]) -> None:
        self.allocation.released_addresses.extend(map(_canonical, ips))

    def _invalid(self, *errors: FieldError) -> ApiError:
        return refused(GroupKind("", "Service"), self._name, errors)


def _canonical(text: str) -> str:
    """Return the name of the IPAddress of an address, which is valid but possibly not canonical."""
    address = parse_ip(text)
    return text if address is None else format_ip(address)
