"""Features of kubelet 1.37 that a node of ours lacks: rows of docs/differences.md.

A pod that asks for what a node cannot do is refused, with the field in its status; nothing is
pretended. What no pod asks for by a field just does not happen.
"""

from typing import Final

from kvstack.agents.process.absent import Absent

ABSENT: Final = (
    Absent(
        "network volumes (`nfs`, `iscsi`, `fc`) and cloud volumes, also those migrated to CSI"
        " drivers",
        "the pod is refused, or waits with an event if a claim is bound to such a volume",
    ),
    Absent(
        "CSI mounts with SELinux contexts, health of CSI volumes (`CSIVolumeHealth`, alpha)",
        "`seLinuxMount` of a CSIDriver has no effect; volume health is not reported",
    ),
    Absent(
        "block devices are locked by a loop device while a pod has them",
        "root may detach the device while a pod uses it",
    ),
    Absent("resource claims (DRA)", "the pod is refused"),
    Absent(
        "of device plugins: what they say of topology and of the health of devices in use, devices"
        " by names of CDI without a container engine, the socket `pod-resources`",
        "pods get any healthy devices, or those that the plugin prefers, and a container with a"
        " name of CDI waits with an error",
    ),
    Absent("`emptyDir` on huge pages", "the pod is refused"),
    Absent(
        "`runtimeClassName`, AppArmor and seccomp profiles of files, `procMount`, hugepage limits",
        "refused by the process runtime; a container engine handles them itself",
    ),
    Absent(
        "`seLinuxOptions` on a machine with SELinux",
        "the pod is refused; without SELinux they are ignored, as upstream",
    ),
    Absent(
        "`hostUsers: false` with a container engine, or where the kernel or the file system of the"
        " node's directory has no idmapped mounts",
        "the pod is refused",
    ),
    Absent(
        "pods without a seccomp profile, with the process runtime",
        "they run with `RuntimeDefault`, also without `seccompDefault`; upstream with `Unconfined`",
    ),
    Absent(
        "resize of pod-level resources (`spec.resources`), of init containers other than sidecars,"
        " of volumes in memory",
        "the API server refuses it: the node does not declare these features",
    ),
    Absent(
        "a node without root: limits, `hostPID`, other machines that join, node ports below 1024",
        "pods that ask for the first two are refused; see docs/without-root.md",
    ),
    Absent(
        "a logind inhibitor lock that delays a shutdown (D-Bus)",
        "systemd stops the kubelet first, which ends the pods in their order then (`--end-pods`);"
        " the time is `TimeoutStopSec` of its unit",
    ),
    Absent("a node without an API server", "`--kubeconfig` is required"),
    Absent(
        "credential plugins, `KubeletEnsureSecretPulledImages`",
        "images are pulled with the secrets of the pod and its ServiceAccount only",
    ),
    Absent("topology manager, CPU manager and memory manager", "containers run on all CPUs"),
    Absent(
        "volumes that are images, with containerd before 2.1 or CRI-O before 1.31 (`subPath` of"
        " them: 2.2 and 1.33)",
        "the container waits with `CreateContainerError` and an event that names the version;"
        " kubelet asks the engine, which fails in words of its own, or mounts the whole image for a"
        " `subPath`",
    ),
    Absent(
        "with a container engine: control groups of pods, `podPidsLimit`",
        "limits are those of containers",
    ),
    Absent(
        "devices by control groups alone",
        "containers of processes can open devices in /dev only (`nodev` everywhere else), and have "
        "that which is itself a `hostPath`, privileged or not",
    ),
    Absent("events `SystemOOM` and `NodeAllocatableEnforced`", "they are not recorded"),
    Absent("`/statusz`, `/flagz`, `/debug/pprof`", "404"),
    Absent(
        "of metrics: `kubelet_pleg_relist_duration_seconds`, `container_swap_limit_bytes`, pressure"
        " (PSI); pods with init containers in `kubelet_pod_start_sli_duration_seconds`",
        "they are not told",
    ),
    Absent(
        "with a container engine: what only control groups count in `/metrics/cadvisor`"
        " (throttling, cache, the most memory, kills for memory, bytes read and written)",
        "it is left out; what the engine says is there",
    ),
    Absent(
        "hollow nodes: the port of a kubelet, with its metrics",
        "what their pods use is in metrics.k8s.io alone",
    ),
)
