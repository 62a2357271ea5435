"""The agents of a process, by the names that `--without` takes."""

from typing import Final

CONTROLLERS: Final = "controllers"
SCHEDULER: Final = "scheduler"
NODES: Final = "nodes"
"""Hollow nodes, which simulate pods."""
NODE: Final = "node"
"""The node that runs pods as processes."""
DASHBOARD: Final = "dashboard"
"""The page at /ui/."""
LOCAL_PATH: Final = "local-path"
"""Volumes that are directories."""
METRICS: Final = "metrics"
"""metrics.k8s.io: the resource usage of nodes and pods."""
DNS: Final = "dns"
"""Names of Services, for pods."""
PROXY: Final = "proxy"
"""The service proxy."""
LOAD_BALANCER: Final = "loadbalancer"
"""The controller that gives Services of type LoadBalancer the addresses of nodes."""
JOINING: Final = "joining"
"""ConfigMaps and rights for machines that join as nodes."""
NETWORK_POLICY: Final = "network-policy"
"""Enforcement of NetworkPolicies on the pods of the node."""
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
