"""What kubelet 1.37 does and a node of ours does not: rows of docs/differences.md.

A pod that asks for what a node cannot do is refused, with the field in its status; nothing is
pretended. What no pod asks for by a field just does not happen.
"""

from typing import Final

from kvstack.agents.process.absent import Absent

ABSENT: Final = (
    Absent(
        "volumes of CSI drivers, of networks (`nfs`, `iscsi`, `fc`) and of clouds; block devices",
        "the pod is refused, or waits with an event if a claim is bound to such a volume",
    ),
    Absent("device plugins, resource claims (DRA)", "the pod is refused"),
    Absent("`emptyDir` on huge pages", "the pod is refused"),
    Absent(
        "`runtimeClassName`, `hostUsers: false`, SELinux, AppArmor and seccomp profiles of files,"
        " `procMount`, limits of huge pages",
        "refused by a node of processes; with a container engine they are the engine's affair",
    ),
    Absent("resize of running pods (`pods/resize`)", "the new amounts are stored, not applied"),
    Absent("addresses of two families a node", "the first family counts"),
    Absent("graceful shutdown of the node", "pods end as the machine ends them"),
    Absent("a node without an API server", "`--kubeconfig` is required"),
    Absent(
        "credential plugins, `KubeletEnsureSecretPulledImages`",
        "images are pulled with the secrets of the pod and its account alone",
    ),
    Absent("topology, CPU and memory manager", "containers run on all processors"),
    Absent(
        "with a container engine: control groups of pods, `podPidsLimit`",
        "limits are those of containers",
    ),
    Absent("events `SystemOOM` and `NodeAllocatableEnforced`", "they are not told"),
    Absent("`/statusz`, `/flagz`, `/debug/pprof`", "404"),
)
