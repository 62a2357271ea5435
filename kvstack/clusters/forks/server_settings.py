"""The settings of a fork's API server, as far as they follow from its contents.

service ranges     of the ServiceCIDR `kubernetes`, or the smallest that has all cluster IPs
node ports         the usual ones, and those that Services have
runtime config     versions of resources that are not served by default and have objects
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import replace
from ipaddress import IPv4Address, ip_address, ip_network
from operator import attrgetter
from typing import Final

from kvstack.agents.standalone.stack_settings import SERVICE_RANGE, StackOptions, stack_options
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apiserver.allocators.cluster_ips import address_range
from kvstack.apiserver.allocators.node_ports import DEFAULT_RANGE
from kvstack.apiserver.server.served import served_rows
from kvstack.apiserver.server.settings.flags import TABLE
from kvstack.apiserver.server.settings.options import Options
from kvstack.clusters.contents import ROOT
from kvstack.clusters.kinds import Kinds, UnreadableError
from kvstack.component.flags.command_line import CommandLine
from kvstore.client.values import KeyValue

_SERVICES: Final = b"/registry/services/specs/"
_SERVICE_RANGES: Final = b"/registry/servicecidrs/kubernetes"
_IPV4_PREFIXES: Final = range(24, 11, -1)
_IPV6_PREFIXES: Final = range(120, 63, -4)


def server_options(
    own: StackOptions,
    kinds: Kinds,
    rows: Sequence[KeyValue],
    *,
    asks_others: bool,
    is_read_only: bool,
) -> Options:
    """Return the settings of the API server of a fork."""
    services = [obj for kv in rows if kv.key.startswith(_SERVICES) and (obj := _read(kinds, kv))]
    options = stack_options(
        own,
        CommandLine(
            TABLE,
            {
                "service-cluster-ip-range": ",".join(_ranges(kinds, rows, services)),
                "service-node-port-range": _node_ports(services),
                "runtime-config": _runtime_config(kinds, rows),
            },
        ),
    )
    serving = replace(options.serving, is_fair=options.serving.is_fair and not is_read_only)
    return replace(
        options,
        serving=serving,
        asks_others=asks_others,
        is_read_only=is_read_only,
        rbac_objects=(),  # roles are those of the contents
    )


def _read(kinds: Kinds, kv: KeyValue) -> Object | None:
    try:
        return kinds.read(kv)
    except UnreadableError:
        return None  # the fork names it when it cannot serve it


def _ranges(kinds: Kinds, rows: Iterable[KeyValue], services: Iterable[Object]) -> tuple[str, ...]:
    """Return the ranges of cluster IPs."""
    for kv in rows:
        if kv.key == _SERVICE_RANGES:
            cidrs = ((_read(kinds, kv) or {}).get("spec") or {}).get("cidrs") or ()
            if cidrs and all(_is_range(each) for each in cidrs):
                return tuple(cidrs)
    addresses = [
        ip_address(text)
        for service in services
        for text in service["spec"].get("clusterIPs") or ()
        if text != "None"
    ]
    first = [
        ip_address(text)
        for service in services
        if service["metadata"]["name"] == "kubernetes"
        and service["metadata"].get("namespace") == "default"
        for text in service["spec"].get("clusterIPs") or ()
    ]
    found = []
    for own in first:
        family = [each for each in addresses if each.version == own.version]
        prefixes = _IPV4_PREFIXES if isinstance(own, IPv4Address) else _IPV6_PREFIXES
        for prefix in prefixes:
            network = ip_network(f"{own}/{prefix}", strict=False)
            # The Service `kubernetes` has the first address of the range.
            if network.network_address + 1 == own and all(each in network for each in family):
                found.append(str(network))
                break
    return tuple(found) or (SERVICE_RANGE,)


def _is_range(text: str) -> bool:
    try:
        address_range(text)
    except ValueError:
        return False
    return True


def _node_ports(services: Iterable[Object]) -> str:
    ports = [
        port["nodePort"]
        for service in services
        for port in service["spec"].get("ports") or ()
        if port.get("nodePort")
    ]
    first = min([DEFAULT_RANGE.first, *ports])
    last = max([DEFAULT_RANGE.last, *ports])
    return f"{first}-{last}"


def _runtime_config(kinds: Kinds, rows: Sequence[KeyValue]) -> dict[str, str]:
    """Return what turns on the versions of resources that have objects and would not be served."""
    found: dict[str, str] = {}
    for prefix, resources in kinds.resources.items():
        start = ROOT + f"{prefix}/".encode()
        at = bisect_left(rows, start, key=attrgetter("key"))
        has_objects = at < len(rows) and rows[at].key.startswith(start)
        if has_objects and not resources[0].is_custom and not served_rows(resources, {}):
            found |= {f"{each.group_version}/{each.name}": "true" for each in resources}
    return found
