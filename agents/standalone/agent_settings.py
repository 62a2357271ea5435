"""What the agents of `kvstack up` are told: the node, controllers, DNS and proxy."""

import contextlib
import os
from ipaddress import IPv4Network, IPv6Network
from socket import gethostname
from typing import TYPE_CHECKING

from kvstack.agents.process.local_zone import local_zone
from kvstack.agents.standalone.parts import (
    CONTROLLERS,
    DNS,
    JOINING,
    LOCAL_PATH,
    NETWORK_POLICY,
    NODE,
)
from kvstack.agents.standalone.pod_range import NONE, PREFIX, parse, taken
from kvstack.agents.standalone.stack_settings import (
    StackOptions,
    kubernetes_dir,
    pki_dir,
    secrets_of,
)
from kvstack.component.line_log.line_logger import LineLogger

if TYPE_CHECKING:
    from kvstack.agents.controllers.options import Options as ControllerOptions
    from kvstack.agents.kubelet.real_node import RealNodeOptions
    from kvstack.agents.standalone.local_agents import AgentOptions
    from kvstack.agents.standalone.local_dns import LocalDnsOptions


def agent_options(
    own: StackOptions,
    pods: IPv4Network | None = None,
    services: IPv4Network | IPv6Network | None = None,
    server: str = "",
) -> "AgentOptions":
    """Return the settings of the agents, once the certificates are there.

    pods: the range of their addresses; None: they share their node's. services: of theirs; None:
    names are left to others. server: URL for joining machines; empty: none may join.
    """
    from kvstack.agents.kubelet.real_node import own_address
    from kvstack.agents.kubelet.routes.node_routes import RouteOptions
    from kvstack.agents.standalone.local_agents import AgentOptions
    from kvstack.agents.standalone.local_proxy import LocalProxyOptions

    ip = own.node_ip or own_address()
    dns = _dns_options(own, ip, pods, services)
    cluster_dns = own.cluster_dns or (dns.service_ip if dns else "")
    node = _node_options(own, ip, pods, cluster_dns)
    controllers = _controller_options(own, pods, services)
    facts = None
    if server and JOINING not in own.without:
        from kvstack.agents.standalone.joining.cluster_facts import ClusterFacts

        facts = ClusterFacts(
            server,
            controllers.root_ca.encode(),
            node.cluster_domain,
            "" if cluster_dns == NONE else cluster_dns,
            *(str(each) if each else "" for each in (pods, services)),
        )
    return AgentOptions(
        own.without,
        own.hollow_nodes,
        own.controllers,
        controllers=controllers,
        node=node,
        dns=dns,
        facts=facts,
        routes=RouteOptions(node.name, pods, own.network) if pods else None,
        proxy=LocalProxyOptions(node.name, ip, (str(pods),) if pods else ()),
    )


def _controller_options(
    own: StackOptions, pods: IPv4Network | None, services: IPv4Network | IPv6Network | None
) -> "ControllerOptions":
    from kvstack.agents.controllers.options import SIGNERS, NodeRanges, Options, SignerOptions

    pki = pki_dir(own.data_dir)
    authority = (pki / "ca.crt").read_bytes()
    signer = SignerOptions(authority, (pki / "ca.key").read_bytes())
    ranges = None
    if pods:
        ranges = NodeRanges((pods,), (PREFIX,), (services,) if services else ())
    return Options(
        root_ca=authority.decode(),
        service_account_key=(pki / "sa.key").read_bytes(),
        signers=dict.fromkeys(SIGNERS, signer),
        node_ranges=ranges,
        local_zone=local_zone(),
    )


def _dns_options(
    own: StackOptions,
    ip: str,
    pods: IPv4Network | None,
    services: IPv4Network | IPv6Network | None,
) -> "LocalDnsOptions | None":
    """Return the settings of the DNS that pods of this machine have; None: they have others."""
    runs_pods = os.geteuid() == 0 and NODE not in own.without
    if not services or not runs_pods or DNS in own.without:
        return None
    from kvstack.agents.kubelet.runtime.process.options import SHARED
    from kvstack.agents.standalone.kube_dns import cluster_ip
    from kvstack.agents.standalone.local_dns import LocalDnsOptions  # brings dnspython

    return LocalDnsOptions(
        gethostname().lower(),
        ip,
        cluster_ip(services),
        has_bridge=_pod_network(own, pods) != SHARED,
        ranges=(pods,) if pods else (),
    )


def _node_options(
    own: StackOptions, ip: str, pods: IPv4Network | None, cluster_dns: str
) -> "RealNodeOptions":
    """Return the settings of the node of this machine; cluster_dns: empty or `none`: none."""
    from kvstack.agents.kubelet.node import node
    from kvstack.agents.kubelet.real_node import RealNodeOptions
    from kvstack.agents.standalone.local_storage import local_storage

    root = kubernetes_dir(own.data_dir).absolute() / "node"
    storage = local_storage(own.local_storage_limit, root, own.data_dir)
    return RealNodeOptions(
        gethostname().lower(),
        str(pki_dir(own.data_dir) / "ca.crt"),
        ip,
        ip,
        root=root,
        labels={} if LOCAL_PATH in own.without else {node.LOCAL_PATH: "true"},
        has_host_image=own.has_host_image,
        host_root_namespaces=own.host_root_namespaces,
        hidden=secrets_of(own),
        images=own.image_dir,
        ignores_limits=own.ignores_limits,
        port_may_differ=True,
        network=_pod_network(own, pods),
        cluster_ranges=(pods,) if pods else (),
        cluster_dns=() if cluster_dns in ("", NONE) else (cluster_dns,),
        evictions=storage.evictions,
        reserved=storage.reserved,
        enforces_policies=NETWORK_POLICY not in own.without,
    )


def _pod_network(own: StackOptions, pods: IPv4Network | None) -> str:
    """Return which network pods have: others may give this node its range later."""
    from kvstack.agents.kubelet.runtime.process.options import AUTOMATIC, BRIDGE, SHARED

    if CONTROLLERS in own.without and own.cluster_range != NONE:
        return AUTOMATIC
    return BRIDGE if pods else SHARED


def pod_range(
    own: StackOptions, log: LineLogger
) -> contextlib.AbstractContextManager[IPv4Network | None]:
    """Hold the range of the cluster's pods; None: there is none, or others give it to nodes."""
    if own.without.isdisjoint((NODE, CONTROLLERS)):
        return taken(own.cluster_range, kubernetes_dir(own.data_dir) / "node", log)
    # Pods run elsewhere, or others give this node its part: nothing is looked for on this machine.
    return contextlib.nullcontext(parse(own.cluster_range) if own.cluster_range else None)
