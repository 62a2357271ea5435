"""What kube-proxy 1.37 does and ours does not: rows of docs/differences.md."""

from typing import Final

from kvstack.agents.process.absent import Absent

ABSENT: Final = (
    Absent(
        "the modes `iptables` (upstream's default) and `ipvs`",
        "they end the start; an empty mode is nftables where the process may write it, else"
        " `userspace`, which serves node ports and addresses of the machine, and no cluster IP",
    ),
    Absent(
        "settings of conntrack (`conntrack-max-per-core` and others), `oom-score-adj`",
        "the kernel's stay",
    ),
    Absent("the feature gate `KubeProxyNFTablesLocalhostNodePorts`", "it is off, as upstream's is"),
    Absent(
        "`kubeproxy_network_programming_duration_seconds`, `/metrics/slis`, `/statusz`, `/flagz`,"
        " profiles",
        "they are not served",
    ),
    Absent("the client's address without nftables", "endpoints see the node's"),
)
