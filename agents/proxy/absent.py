"""What kube-proxy 1.37 does and ours does not: rows of docs/differences.md."""

from typing import Final

from kvstack.agents.process.absent import Absent

ABSENT: Final = (
    Absent(
        "the mode `ipvs`",
        "it ends the start; an empty mode (upstream's is `iptables`) is the first that works of"
        " `nftables`, `iptables` and `userspace`, whose connections this process relays (cluster"
        " IPs only as root)",
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
    Absent("in mode `userspace`: the client's address", "endpoints see the node's"),
    Absent(
        "in mode `iptables`: counts of dropped packets (`nfacct`), several ranges of pods a family",
        "packets are not counted; several ranges end the start",
    ),
)
