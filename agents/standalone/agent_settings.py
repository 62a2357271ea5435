"""Settings of the agents of `kvstack up`: the node, controllers, DNS and proxy."""

import contextlib
import dataclasses
import os
from collections.abc import Sequence
from ipaddress import ip_address, ip_network
from socket import gethostname
from typing import TYPE_CHECKING, Any

from kvstack.agents.process.local_zone import local_zone
from kvstack.agents.standalone.parts import (
    CONTROLLERS,
    DNS,
    JOINING,
    LOCAL_PATH,
    NETWORK_POLICY,
    NODE,
    PROXY,
)
from kvstack.agents.standalone.pod_range import NONE, PREFIXES, Network, parse, reserve_ranges
from kvstack.agents.standalone.stack_settings import (
    StackOptions,
    kubernetes_dir,
    pki_dir,
    secrets_of,
)
from kvstack.component.line_log.line_logger import LineLogger
from kvstack.component.net.hosts import LOOPBACK, of_families, own_addresses

if TYPE_CHECKING:
    from kvstack.agents.controllers.options import Options as ControllerOptions
    from kvstack.agents.kubelet.real_node import RealNodeOptions
    from kvstack.agents.kubelet.routes.node_routes import RouteOptions
    from kvstack.agents.standalone.local_agents import AgentOptions
    from kvstack.agents.standalone.local_dns import LocalDnsOptions
    from kvstack.agents.standalone.local_proxy import LocalProxyOptions
    from kvstack.agents.standalone.rootless.outside import Outside


def agent_options(
    own: StackOptions,
    pods: Sequence[Network] = (),
    services: Sequence[Network] = (),
    server: str = "",
    outside: "Outside | None" = None,
    api: tuple[str, int] | None = None,
) -> "AgentOptions":
    """Return the settings of the agents, once the certificates are there.

    pods: the ranges of their addresses, one of a family at most; none: they share their node's.
    services: of theirs; none: names are left to others. server: URL for joining machines; empty:
    none may join. outside: of the user namespace that this process is in; None: it is in none.
    api: where the API server listens, if pods have no address of it; None: they have.
    """
    from kvstack.agents.standalone.local_agents import AgentOptions

    ips = node_ips(own, pods, services)
    dns = _dns_options(own, ips, pods, services)
    cluster_dns = own.cluster_dns or (dns.service_ip if dns else "")
    # Without a node in this process, the node's modules are not loaded.
    is_needed = NODE not in own.without or bool(pods or server or outside)
    node = _node_options(own, ips, pods, cluster_dns) if is_needed else None
    controllers = _controller_options(own, pods, services)
    facts = None
    if node is not None and server and JOINING not in own.without:
        from kvstack.agents.standalone.joining.cluster_facts import ClusterFacts

        facts = ClusterFacts(
            server,
            controllers.root_ca.encode(),
            node.cluster_domain,
            "" if cluster_dns == NONE else cluster_dns,
            *(",".join(map(str, each)) for each in (pods, services)),
        )
    return AgentOptions(
        own.without,
        own.hollow_nodes,
        own.controllers,
        controllers=controllers,
        node=node,
        dns=dns,
        facts=facts,
        routes=_route_options(own, pods),
        proxy=_proxy_options(own, ips, pods, api),
        outside=outside,
    )


def _route_options(own: StackOptions, pods: Sequence[Network]) -> "RouteOptions | None":
    if not pods:
        return None
    from kvstack.agents.kubelet.routes.node_routes import RouteOptions

    return RouteOptions(gethostname().lower(), pods, own.network)


def _proxy_options(
    own: StackOptions, ips: Sequence[str], pods: Sequence[Network], api: tuple[str, int] | None
) -> "LocalProxyOptions | None":
    """Return the settings of the proxy; None: there is no node here, or others serve it."""
    if not own.without.isdisjoint((NODE, PROXY)):
        return None
    from kvstack.agents.standalone.local_proxy import LocalProxyOptions

    return LocalProxyOptions(
        gethostname().lower(),
        tuple(ips),
        tuple(map(str, pods)),
        api,
        metrics_address=own.proxy_metrics_address,
        healthz_address=own.proxy_healthz_address,
    )


def node_ips(
    own: StackOptions, pods: Sequence[Network], services: Sequence[Network]
) -> tuple[str, ...]:
    """Return the addresses of the node, one of a family, that of the first family first.

    Families are those of pods and Services; one that the machine has no address of towards others
    is left out, unless it is the only one.
    """
    if own.node_ip:
        return tuple(map(str, of_families(own.node_ip, ip_address)))
    families = dict.fromkeys(each.version for each in (*services, *pods)) or (4,)
    return own_addresses(families)


def _controller_options(
    own: StackOptions, pods: Sequence[Network], services: Sequence[Network]
) -> "ControllerOptions":
    from kvstack.agents.controllers.options import SIGNERS, NodeRanges, Options, SignerOptions

    pki = pki_dir(own.data_dir)
    authority = (pki / "ca.crt").read_bytes()
    signer = SignerOptions(authority, (pki / "ca.key").read_bytes())
    ranges = None
    if pods:
        masks = tuple(PREFIXES[each.version] for each in pods)
        ranges = NodeRanges(tuple(pods), masks, tuple(services))
    return Options(
        root_ca=authority.decode(),
        service_account_key=(pki / "sa.key").read_bytes(),
        signers=dict.fromkeys(SIGNERS, signer),
        node_ranges=ranges,
        local_zone=local_zone(),
    )


def _dns_options(
    own: StackOptions,
    ips: Sequence[str],
    pods: Sequence[Network],
    services: Sequence[Network],
) -> "LocalDnsOptions | None":
    """Return the settings of the DNS that pods of this machine have; None: they have others."""
    runs_pods = os.geteuid() == 0 and NODE not in own.without
    if not services or not runs_pods or DNS in own.without:
        return None
    from kvstack.agents.dns.publishing.kube_dns import cluster_ip
    from kvstack.agents.kubelet.runtime.process.options import SHARED
    from kvstack.agents.standalone.local_dns import LocalDnsOptions  # brings dnspython

    return LocalDnsOptions(
        gethostname().lower(),
        _of_family(ips, services[0].version),
        cluster_ip(services[0]),
        has_bridge=_pod_network(own, pods) != SHARED,
        ranges=(*map(ip_network, ips), *pods),
        walks=own.dns_walks,
    )


def _of_family(ips: Sequence[str], family: int) -> str:
    """Return the node's address of a family, or the loopback's."""
    own = (each for each in ips if ip_address(each).version == family)
    return next(own, LOOPBACK[family])


def _node_options(
    own: StackOptions, ips: Sequence[str], pods: Sequence[Network], cluster_dns: str
) -> "RealNodeOptions":
    """Return the settings of the node of this machine; cluster_dns: empty or `none`: none."""
    from kvstack.agents.kubelet.node import node
    from kvstack.agents.kubelet.real_node import RealNodeOptions
    from kvstack.agents.standalone.local_storage import local_storage

    root = kubernetes_dir(own.data_dir).absolute() / "node"
    storage = local_storage(own.local_storage_limit, root, own.data_dir)
    options = RealNodeOptions(
        gethostname().lower(),
        str(pki_dir(own.data_dir) / "ca.crt"),
        ips[0],
        ips[0],
        root=root,
        labels={} if LOCAL_PATH in own.without else {node.LOCAL_PATH: "true"},
        has_host_image=own.has_host_image,
        host_root_namespaces=own.host_root_namespaces,
        hidden=secrets_of(own),
        images=own.image_dir,
        ignores_limits=own.ignores_limits,
        port_may_differ=True,
        network=_pod_network(own, pods),
        cluster_ranges=pods,
        more_ips=tuple(ips[1:]),
        cluster_dns=() if cluster_dns in ("", NONE) else (cluster_dns,),
        evictions=storage.evictions,
        reserved=storage.reserved,
        enforces_policies=NETWORK_POLICY not in own.without,
    )
    return dataclasses.replace(options, configuration=node_configuration(options))


def node_configuration(options: "RealNodeOptions") -> dict[str, Any]:
    """Return what /configz shows of a node: kubelet's defaults, and what is different here."""
    from kvstack.agents.kubelet.configuration import read_configuration
    from kvstack.agents.kubelet.eviction.evictions import LOCAL_STORAGE

    hard = {
        signal: amount
        for signal, amount in options.evictions.hard.items()
        if signal != LOCAL_STORAGE  # kubelet has no such signal
    }
    return read_configuration(
        {
            "address": options.address,
            "authentication": {"x509": {"clientCAFile": options.client_ca}},
            "clusterDNS": list(options.cluster_dns),
            "clusterDomain": options.cluster_domain if options.cluster_dns else "",
            "evictionHard": hard,
            "healthzPort": 0,  # the API server says how the process is
            "podLogsDir": str(options.root / "logs"),
            "systemReserved": dict(options.reserved),
        }
    )


def _pod_network(own: StackOptions, pods: Sequence[Network]) -> str:
    """Return which network pods have: others may give this node its range later."""
    from kvstack.agents.kubelet.runtime.process.options import AUTOMATIC, BRIDGE, SHARED

    if CONTROLLERS in own.without and own.cluster_range != NONE:
        return AUTOMATIC
    return BRIDGE if pods else SHARED


def pod_ranges(
    own: StackOptions, services: Sequence[Network], log: LineLogger
) -> contextlib.AbstractContextManager[tuple[Network, ...]]:
    """Hold the ranges of the cluster's pods; none: they have none, or others give it to nodes."""
    if own.without.isdisjoint((NODE, CONTROLLERS)):
        families = [each.version for each in services]
        return reserve_ranges(
            own.cluster_range, families, kubernetes_dir(own.data_dir) / "node", log
        )
    # Pods run elsewhere, or others give this node its part: nothing is looked for on this machine.
    return contextlib.nullcontext(parse(own.cluster_range) if own.cluster_range else ())
