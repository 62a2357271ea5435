"""Settings of a runtime whose containers are processes."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kvstack.agents.kubelet.runtime.process.network.pod_network import STATE
from kvstack.agents.kubelet.runtime.runtime import Limits
from kvstack.component.net.netlink import Network

SHARED: Final = "host"
BRIDGE: Final = "bridge"
AUTOMATIC: Final = "auto"
"""How pods are connected: they share the node's network; each has its own; its own if it can be."""


@dataclass(frozen=True, slots=True)
class ProcessOptions:
    """Settings of a runtime."""

    root: Path
    ends_with_node: bool = True
    """Whether containers end when this process does, however it ends."""
    cgroup: str = "kubepods"
    """Under which containers are."""
    limits: Limits | None = None
    """Of all pods together; None: of others' making."""
    node_ips: Sequence[str] = ()
    """The addresses of pods that share the node's network."""
    network: str = SHARED
    cluster_ranges: Sequence[Network] = ()
    """Of the pods of all nodes, one of a family at most; none: they are not known."""
    state: Path = STATE
    """What nodes of this machine have in common."""
    host_root_namespaces: Sequence[str] = ()
    """Of the API: whose pods of `host:latest` may be root of the machine, if they ask for it."""
    hidden: Sequence[Path] = ()
    """What pods of `host:latest` do not see, besides the root and the machine's own secrets."""
