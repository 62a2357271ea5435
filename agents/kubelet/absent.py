"""Features of kubelet 1.37 that a node of ours lacks: rows of docs/differences.md.

A pod that asks for what a node cannot do is refused, with the field in its status; nothing is
pretended. What no pod asks for by a field just does not happen.
"""

from typing import Final

from kvstack.agents.process.absent import Absent

ABSENT: Final = (
    Absent(
        "volumes of networks (`nfs`, `iscsi`, `fc`) and of clouds, also those that CSI drivers have"
        " taken over (migration)",
        "the pod is refused, or waits with an event if a claim is bound to such a volume",
    ),
    Absent(
        "of CSI: mounts with SELinux contexts, the health of volumes (`CSIVolumeHealth`, alpha)",
        "`seLinuxMount` of a CSIDriver has no effect; nothing is reported",
    ),
    Absent(
        "block devices are locked by a loop device while a pod has them",
        "root may detach the device below a pod",
    ),
    Absent("resource claims (DRA)", "the pod is refused"),
    Absent(
        "device plugins on the node of `kvstack up`; elsewhere what they say of topology and of the"
        " health of devices in use, devices by names of CDI without a container engine, the socket"
        " `pod-resources`",
        "there they cannot register; elsewhere pods get any healthy devices, or those that the"
        " plugin prefers, and a container with a name of CDI waits with an error",
    ),
    Absent("`emptyDir` on huge pages", "the pod is refused"),
    Absent(
        "`runtimeClassName`, AppArmor and seccomp profiles of files, `procMount`, limits of huge"
        " pages",
        "refused by a node of processes; with a container engine they are the engine's affair",
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
        "pods that say nothing of seccomp, on a node of processes",
        "they run with `RuntimeDefault`, also without `seccompDefault`; upstream with `Unconfined`",
    ),
    Absent(
        "resize of what a pod itself names (`spec.resources`), of init containers that are no"
        " sidecars, of volumes in memory",
        "the API server refuses it: the node does not declare these features",
    ),
    Absent(
        "a node without root: limits, `hostPID`, other machines that join, node ports below 1024",
        "pods that ask for the first two are refused; see docs/without-root.md",
    ),
    Absent(
        "a lock of logind that holds a shutdown up (D-Bus)",
        "systemd stops the kubelet first, which ends the pods in their order then (`--end-pods`);"
        " the time is `TimeoutStopSec` of its unit",
    ),
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
    Absent(
        "devices by control groups alone",
        "containers of processes can open devices in /dev only (`nodev` everywhere else), and have "
        "that which is itself a `hostPath`, privileged or not",
    ),
    Absent("events `SystemOOM` and `NodeAllocatableEnforced`", "they are not recorded"),
    Absent("`/statusz`, `/flagz`, `/debug/pprof`", "404"),
)
