"""Settings of the controllers, from the controller manager's flags."""

from dataclasses import dataclass, field
from datetime import UTC, tzinfo
from ipaddress import IPv4Network, IPv6Network
from typing import Final

from kvstack.apimachinery.well_known import (
    CLIENT_SIGNER,
    KUBELET_CLIENT_SIGNER,
    KUBELET_SERVING_SIGNER,
    LEGACY_SIGNER,
)

SIGNERS: Final = (
    CLIENT_SIGNER,
    KUBELET_CLIENT_SIGNER,
    KUBELET_SERVING_SIGNER,
    LEGACY_SIGNER,
)
"""The names of the signers that a controller manager may serve."""


@dataclass(frozen=True, slots=True)
class NodeLifecycleOptions:
    """Grace periods of nodes, and rates of evictions."""

    monitor_period_s: float = 5.0
    grace_period_s: float = 50.0
    startup_grace_period_s: float = 60.0
    eviction_rate: float = 0.1
    """Nodes of a zone that are tainted a second."""
    secondary_eviction_rate: float = 0.01
    large_cluster_size: int = 50
    unhealthy_zone_threshold: float = 0.55
    trusts_leases: bool = False
    """Whether a node whose lease says that it lasts longer may be silent for as long."""


@dataclass(frozen=True, slots=True)
class AutoscalerOptions:
    """Settings of horizontal pod autoscaling."""

    sync_period_s: float = 15.0
    downscale_stabilization_s: float = 300.0
    tolerance: float = 0.1
    cpu_initialization_s: float = 300.0
    readiness_delay_s: float = 30.0


@dataclass(frozen=True, slots=True)
class VolumeOptions:
    """Settings of volumes and claims."""

    sync_period_s: float = 15.0
    """The interval of checks of pending claims."""
    provisions: bool = True
    """Whether volumes are provisioned dynamically."""
    forces_detach: bool = True
    """Whether volumes mounted on an unready node are force-detached after six minutes."""


@dataclass(frozen=True, slots=True)
class SignerOptions:
    """A certificate authority in PEM; empty: this signer does not sign."""

    certificate: bytes = b""
    key: bytes = b""


@dataclass(frozen=True, slots=True)
class NodeRanges:
    """The ranges of pod addresses, of which each node is given a part."""

    clusters: tuple[IPv4Network | IPv6Network, ...]
    """One, or one of each family; the first is the preferred one."""
    masks: tuple[int, ...]
    """The prefix length of a node's part of each range."""
    services: tuple[IPv4Network | IPv6Network, ...] = ()
    """Ranges of cluster IPs, which are not allocated to nodes."""


@dataclass(frozen=True, slots=True)
class Options:
    """Settings of controllers; defaults are upstream's."""

    root_ca: str = ""
    """PEM bundle with which clients of the cluster check the API server; empty: not published."""
    service_account_key: bytes = b""
    """PEM key that signs tokens in Secrets; empty: such tokens are not made."""
    signers: dict[str, SignerOptions] = field(default_factory=dict)
    """By signer name."""
    signing_duration_s: float = 8760 * 3600.0
    autoscaler: AutoscalerOptions = field(default_factory=AutoscalerOptions)
    nodes: NodeLifecycleOptions = field(default_factory=NodeLifecycleOptions)
    volumes: VolumeOptions = field(default_factory=VolumeOptions)
    node_ranges: NodeRanges | None = None
    """None: nodes get no ranges of pod addresses."""
    terminated_pods_max: int = 12500
    quota_sync_period_s: float = 300.0
    endpoints_per_slice_max: int = 100
    mirrored_addresses_max: int = 1000
    unused_token_s: float = 8760 * 3600.0
    """How long unused tokens in Secrets are kept."""
    unread_kinds: frozenset[tuple[str, str]] = frozenset()
    """Groups and resources of a copied cluster whose objects could not be copied."""
    local_zone: tzinfo = UTC
    """The time zone of schedules without one: that of the process."""
