"""What kubeadm has and `kvstack token` and `kvstack join` lack; listed in docs/differences.md."""

from typing import Final

from kvstack.agents.process.absent import Absent

ABSENT: Final = (
    Absent(
        "`kubeadm init`, `reset`, `upgrade`; machines of the control plane that join",
        "`kvstack up`; how a node leaves is in docs/several-nodes.md",
    ),
    Absent(
        "`join` ends once a kubelet runs", "it keeps running as the node; an init system starts it"
    ),
    Absent(
        "`join --config`, `--discovery-token`, `--tls-bootstrap-token`",
        "`--token` is used for both; a `--discovery-file` may have it",
    ),
    Absent(
        "of several CAs in cluster-info, one must match the hash",
        "each must match one of the hashes",
    ),
    Absent(
        "`token create --usages`, `--groups`, `--config`, `--certificate-key`; `token generate`",
        "tokens sign and authenticate, with kubeadm's group",
    ),
)
