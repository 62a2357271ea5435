"""The agents of a process, by the names that `--without` takes."""

from typing import Final

CONTROLLERS: Final = "controllers"
SCHEDULER: Final = "scheduler"
NODES: Final = "nodes"
"""Those that only pretend."""
NODE: Final = "node"
"""The one that runs pods as processes."""
DASHBOARD: Final = "dashboard"
"""The page at /ui/."""
LOCAL_PATH: Final = "local-path"
"""Volumes that are directories."""
METRICS: Final = "metrics"
"""What nodes and pods use: metrics.k8s.io."""
DNS: Final = "dns"
"""Names of Services, for pods."""
PROXY: Final = "proxy"
"""The service proxy."""
LOAD_BALANCER: Final = "loadbalancer"
"""What gives Services of type LoadBalancer the addresses of nodes."""
JOINING: Final = "joining"
"""What other machines read and may that join as nodes."""
NETWORK_POLICY: Final = "network-policy"
"""What enforces NetworkPolicies on the pods of the node."""
PARTS: Final = (
    CONTROLLERS,
    SCHEDULER,
    NODES,
    NODE,
    DASHBOARD,
    LOCAL_PATH,
    METRICS,
    DNS,
    PROXY,
    LOAD_BALANCER,
    JOINING,
    NETWORK_POLICY,
)
