"""Every RPC, flag, feature gate, endpoint and metric of etcd 3.7.1, as this project's code has it.

    rpc:KV/Put   flag:pre-vote   gate:LeaseCheckpoint   http:/v3/kv/put   peer:/raft   metrics

Names come from the protocol's descriptors and from the tables the server itself works with, so an
item can neither be forgotten nor invented. Metrics have a table of their own (docs/metrics.md).
"""

from typing import Final

from kvstore.config.flags import FEATURE_GATES, FLAGS, OURS
from kvstore.server.gateway.routes import ROUTES
from kvstore.wire.rpc import METHODS

# What the pages of the client port and of the peer port are called is said where they are made, in
# several places; etcd's own are these.
PAGES: Final = (
    "/version",
    "/health",
    "/livez",
    "/readyz",
    "/metrics",
    "/debug/vars",
    "/debug/pprof/",
    "/debug/requests",
    "/debug/events",
)
PEER_PAGES: Final = (
    "/raft",
    "/raft/stream/message",
    "/raft/stream/msgapp",
    "/raft/snapshot",
    "/raft/probing",
    "/members",
    "/members/promote/ID",
    "/members/hashkv",
    "/leases",
    "/leases/internal",
    "/downgrade/enabled",
    "/version",
)
COMMANDS: Final = ("gateway", "grpc-proxy")


def all_items() -> dict[str, list[str]]:
    """Return the items of each part, in the order of the table."""
    return {
        "RPCs": [f"rpc:{method.path.rpartition('.')[2]}" for method in METHODS],
        "Flags": [f"flag:{flag.name}" for flag in FLAGS if flag.group != OURS],
        "Feature gates": [f"gate:{name}" for name in FEATURE_GATES],
        "HTTP on the client port": [*(f"http:{path}" for path in PAGES),
                                    *(f"http:{path}" for path in ROUTES)],
        "HTTP on the peer port": [f"peer:{path}" for path in PEER_PAGES],
        "Subcommands": [f"command:{name}" for name in COMMANDS],
        "Metrics": ["metrics"],
    }  # fmt: skip
