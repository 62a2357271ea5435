"""Settings of a kubelet that runs one node."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kvstack.agents.kubelet.eviction.pressures import EvictionOptions
from kvstack.agents.kubelet.images.image_garbage import ImageOptions
from kvstack.agents.kubelet.node.leases import DURATION_S
from kvstack.agents.kubelet.node.node_status import StatusOptions
from kvstack.agents.kubelet.pods.restarts import MAX_S
from kvstack.agents.kubelet.pods.sandboxes import NodeNames, NodeSettings
from kvstack.agents.kubelet.static.static_pods import StaticSettings


@dataclass(frozen=True, slots=True)
class KeepingOptions:
    """Settings of garbage collection."""

    evictions: EvictionOptions = field(default_factory=EvictionOptions)
    images: ImageOptions = field(default_factory=ImageOptions)
    log_bytes_max: int = 10 << 20
    log_files_max: int = 5


@dataclass(frozen=True, slots=True)
class KubeletOptions:
    """Settings of one node."""

    name: str
    ip: str
    root: Path
    port: int = 10250
    pods_max: int = 110
    ignores_limits: bool = False
    logs: Path | None = None
    """The directory of pods' logs; None: in the node's own directory."""
    cgroup_root: str = "kubepods"
    names: NodeNames = field(default_factory=NodeNames)
    seccomp_default: bool = False
    pids_max: int = -1
    """Processes of a pod; -1: as many as it likes."""
    back_off_max_s: float = MAX_S
    """The maximum back-off of crashing containers."""
    static: StaticSettings = field(default_factory=StaticSettings)
    static_every_s: float = 20.0
    reserved: dict[str, str] = field(default_factory=dict)
    status: StatusOptions = field(default_factory=StatusOptions)
    keeping: KeepingOptions = field(default_factory=KeepingOptions)
    log_links: Path | None = None
    """The directory of links to all logs; None: no links."""
    allowed_sysctls: Sequence[str] = ()
    """Allowed sysctls besides the safe ones."""
    device_plugins: Path | None = None
    """The directory in which device plugins register; None: none may."""
    csi_call_s: float = 120.0
    """The timeout of each call of a CSI driver."""
    shutdown: Sequence[tuple[int, float]] = ()
    """Priorities of pods, and seconds in which those of each end with the node; none: they stay."""
    lease_s: int = DURATION_S
    """The duration of the node's lease."""
    more_ips: tuple[str, ...] = ()
    """Addresses of the other family."""

    @property
    def ips(self) -> tuple[str, ...]:
        """The addresses of the node, one of a family, the first one first."""
        return (self.ip, *self.more_ips)

    def for_pods(self, memory_kib: int) -> NodeSettings:
        """Return what the node adds to each pod; memory_kib: of the machine."""
        return NodeSettings(
            str(self.logs or self.root / "logs"),
            memory_kib * 1024,
            self.cgroup_root,
            self.names,
            self.seccomp_default,
            self.pids_max,
            str(self.root / "seccomp"),
        )
