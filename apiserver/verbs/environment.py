"""What all requests of a server share: registry, policy, clock, randomness and settings."""

from dataclasses import dataclass, field
from random import Random
from typing import Final

from kvstack.apiserver.allocators.cluster_ips import AddressRange
from kvstack.apiserver.allocators.node_ports import DEFAULT_RANGE
from kvstack.apiserver.policy.interfaces import Admission, Authorizer
from kvstack.apiserver.registry.registry import Registry
from kvstack.apiserver.verbs.endpoint import Endpoints
from kvstack.apiserver.verbs.interfaces import ObjectSource, ReviewHandler
from kvstack.apiserver.verbs.large_objects import LargeObjects
from kvstack.apiserver.verbs.writing.identifiers import Identifiers
from kvstack.component.clock import Clock
from kvstack.component.net.port_range import PortRange

HOUR_S: Final = 3600


@dataclass(slots=True)
class Settings:
    """Settings of requests."""

    event_ttl_s: int = HOUR_S
    catch_up_s: float = 30.0
    """How long a write waits for the watch cache, where it must be current."""
    allow_privileged: bool = False
    service_ranges: tuple[AddressRange, ...] = ()
    """The ranges of the flags, the default family first."""
    node_ports: PortRange = DEFAULT_RANGE
    kubelet_addresses: tuple[str, ...] = ("InternalIP", "Hostname")
    """Types of node addresses to reach kubelets at, in order of preference."""
    proxies_to_loopback: bool = False
    """Whether `proxy` reaches nodes and pods at loopback addresses, as needed where the whole
    cluster is on one machine."""
    min_request_timeout_s: int = 1800
    """A watch without a timeout of its own lasts this long, or up to twice as long."""
    is_read_only: bool = False
    """Whether writes are refused."""


@dataclass(slots=True)
class Environment:
    """What verbs need besides the request."""

    registry: Registry
    endpoints: Endpoints
    """The served endpoints."""
    authorizer: Authorizer
    clock: Clock
    random: Random
    identifiers: Identifiers
    settings: Settings = field(default_factory=Settings)
    reviews: dict[tuple[str, str, str], ReviewHandler] = field(default_factory=dict)
    """Handlers of creates that store nothing, by group, resource and subresource."""
    sources: dict[tuple[str, str], ObjectSource] = field(default_factory=dict)
    """Sources of computed objects, by group and resource."""
    large_objects: LargeObjects = field(default_factory=LargeObjects)
    """The thread for large objects."""
    admission: Admission = field(init=False)
    """Set before the first request: plugins may write through the verbs, which need the rest.
    Earlier reads raise AttributeError."""
