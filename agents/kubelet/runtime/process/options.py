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
"""Network modes of pods: the node's network; a network each; the latter if possible."""


@dataclass(frozen=True, slots=True)
class ProcessOptions:
    """Settings of a runtime."""

    root: Path
    ends_with_node: bool = True
    """Whether containers end when this process does, however it ends."""
    cgroup: str = "kubepods"
    """Under which containers are."""
    limits: Limits | None = None
    """The limits of all pods together; None: set by others."""
    node_ips: Sequence[str] = ()
    """The addresses of pods that share the node's network."""
    network: str = SHARED
    cluster_ranges: Sequence[Network] = ()
    """The ranges of the pods of all nodes, one of a family at most; none: unknown."""
    state: Path = STATE
    """The directory that nodes of this machine share."""
    host_root_namespaces: Sequence[str] = ()
    """Namespaces whose pods of `host:latest` may be root of the machine, if they request it."""
    hidden: Sequence[Path] = ()
    """Paths hidden from pods of `host:latest`, besides the root and the machine's own secrets."""
