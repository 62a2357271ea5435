"""CRI messages of a pod: its sandbox and containers.

Labels and annotations are those by which any kubelet finds its containers again.
"""

from typing import TYPE_CHECKING, Final

from kvstack.agents.kubelet.runtime.cri.gen import api_pb2 as cri
from kvstack.agents.kubelet.runtime.pod_groups import SYSTEMD, slice_of
from kvstack.agents.kubelet.runtime.runtime import ContainerConfig, Limits, Sandbox, Security

if TYPE_CHECKING:
    from collections.abc import Sequence

POD_NAME: Final = "io.kubernetes.pod.name"
POD_NAMESPACE: Final = "io.kubernetes.pod.namespace"
POD_UID: Final = "io.kubernetes.pod.uid"
CONTAINER_NAME: Final = "io.kubernetes.container.name"
RESTART_COUNT: Final = "io.kubernetes.container.restartCount"
MESSAGE_PATH: Final = "io.kubernetes.container.terminationMessagePath"
MESSAGE_POLICY: Final = "io.kubernetes.container.terminationMessagePolicy"
TTY: Final = "kvstack.container.tty"
IMAGE: Final = "kvstack.container.image"
"""The image as the pod names it."""

_PERIOD_US: Final = 100_000
_PROPAGATION: Final = {
    "None": cri.PROPAGATION_PRIVATE,
    "HostToContainer": cri.PROPAGATION_HOST_TO_CONTAINER,
    "Bidirectional": cri.PROPAGATION_BIDIRECTIONAL,
}
_PROTOCOLS: Final = {"TCP": cri.TCP, "UDP": cri.UDP, "SCTP": cri.SCTP}
_MASKED: Final = (
    *(f"/proc/{name}" for name in ("asound", "acpi", "interrupts", "kcore", "keys", "scsi")),
    *("/proc/latency_stats", "/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug"),
    *("/sys/firmware", "/sys/devices/virtual/powercap"),
)
_READ_ONLY: Final = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")


def pod_labels(sandbox: Sandbox) -> dict[str, str]:
    """Return the labels by which what belongs to a pod is found."""
    return {POD_NAME: sandbox.name, POD_NAMESPACE: sandbox.namespace, POD_UID: sandbox.uid}


def sandbox_config(sandbox: Sandbox, attempt: int, driver: str) -> cri.PodSandboxConfig:
    """Return the PodSandboxConfig of a sandbox; driver: the engine's cgroup driver."""
    group = slice_of(sandbox.cgroup) if driver == SYSTEMD else f"/{sandbox.cgroup}"
    security = sandbox.security
    context = cri.LinuxSandboxSecurityContext(
        privileged=security.is_privileged,
        namespace_options=_namespaces(sandbox),
        supplemental_groups=list(security.groups),
        seccomp=_profile(security.seccomp),
    )
    if security.user is not None:
        context.run_as_user.value = security.user
    if security.group is not None:
        context.run_as_group.value = security.group
    return cri.PodSandboxConfig(
        metadata=cri.PodSandboxMetadata(
            name=sandbox.name, uid=sandbox.uid, namespace=sandbox.namespace, attempt=attempt
        ),
        hostname=sandbox.hostname,
        log_directory=sandbox.log_directory,
        dns_config=cri.DNSConfig(
            servers=sandbox.servers, searches=sandbox.searches, options=sandbox.options
        ),
        port_mappings=[
            cri.PortMapping(
                protocol=_PROTOCOLS[each.protocol],
                container_port=each.number,
                host_port=each.host_port,
                host_ip=each.host_ip,
            )
            for each in sandbox.ports
        ],
        labels={**sandbox.labels, **pod_labels(sandbox)},
        annotations=dict(sandbox.annotations),
        linux=cri.LinuxPodSandboxConfig(
            cgroup_parent=group if sandbox.cgroup else "",
            security_context=context,
            sysctls=dict(sandbox.sysctls),
            resources=resources(sandbox.limits),
        ),
    )


def _namespaces(sandbox: Sandbox, target: str = "") -> cri.NamespaceOption:
    pid = cri.POD if sandbox.shares_pids else cri.CONTAINER
    if sandbox.has_host_pids:
        pid = cri.NODE
    if target:
        pid = cri.TARGET
    return cri.NamespaceOption(
        network=cri.NODE if sandbox.has_host_network else cri.POD,
        ipc=cri.NODE if sandbox.has_host_ipc else cri.POD,
        pid=pid,
        target_id=target,
    )


def _profile(kind: str) -> cri.SecurityProfile:
    profile = cri.SecurityProfile
    if kind in ("", "Unconfined", "RuntimeDefault"):
        return profile(profile_type=kind or "Unconfined")
    return profile(profile_type=profile.Localhost, localhost_ref=kind)


def resources(limits: Limits, *, unified: bool = False) -> cri.LinuxContainerResources:
    """Return limits as an engine takes them; unified: for control groups of version 2."""
    own = {"memory.oom.group": "1"} if unified and limits.kills_all else {}
    return cri.LinuxContainerResources(
        cpu_period=_PERIOD_US,
        cpu_quota=limits.cpu_quota_us,
        cpu_shares=limits.cpu_shares,
        memory_limit_in_bytes=limits.memory_bytes,
        oom_score_adj=limits.oom_score,
        unified=own,
    )


def container_config(
    config: ContainerConfig, message_file: str, *, recursive: bool = False, unified: bool = False
) -> cri.ContainerConfig:
    """Return the ContainerConfig of a container; message_file: for its termination message.

    recursive: whether the engine can let what is mounted below a mount only be read. unified:
    whether the machine has control groups of version 2.
    """
    mounts = [
        cri.Mount(
            container_path=each.target,
            host_path=each.source,
            readonly=each.is_read_only,
            propagation=_PROPAGATION[each.propagation],
            recursive_read_only=each.is_recursive and recursive,
        )
        for each in config.mounts
        if not each.image
    ]
    mounts += [
        cri.Mount(
            container_path=each.target,
            readonly=True,
            image=cri.ImageSpec(image=each.image_id or each.image, user_specified_image=each.image),
            image_sub_path=each.source,
        )
        for each in config.mounts
        if each.image
    ]
    mounts.append(cri.Mount(container_path=config.termination_path, host_path=message_file))
    policy = "FallbackToLogsOnError" if config.falls_back_to_logs else "File"
    return cri.ContainerConfig(
        metadata=cri.ContainerMetadata(name=config.name, attempt=config.attempt),
        image=cri.ImageSpec(
            image=config.image_id or config.image, user_specified_image=config.image
        ),
        command=list(config.command),
        args=list(config.arguments),
        working_dir=config.directory,
        envs=[
            cri.KeyValue(key=key, value=value.encode()) for key, value in config.environment.items()
        ],
        mounts=mounts,
        labels={**pod_labels(config.sandbox), CONTAINER_NAME: config.name},
        annotations={
            RESTART_COUNT: str(config.attempt),
            MESSAGE_PATH: config.termination_path,
            MESSAGE_POLICY: policy,
            IMAGE: config.image,
            **({TTY: "true"} if config.has_tty else {}),
            **config.devices.annotations,
        },
        devices=[
            cri.Device(host_path=source, container_path=target, permissions=access)
            for source, target, access, _ in config.devices.files
        ],
        CDI_devices=[cri.CDIDevice(name=each) for each in config.devices.names],
        log_path=f"{config.name}/{config.attempt}.log",
        stdin=config.has_stdin,
        stdin_once=config.has_stdin_once,
        tty=config.has_tty,
        linux=cri.LinuxContainerConfig(
            resources=resources(config.limits, unified=unified),
            security_context=_security(config.sandbox, config.security, config.target),
        ),
    )


def _security(
    sandbox: Sandbox, security: Security, target: str
) -> cri.LinuxContainerSecurityContext:
    hidden: Sequence[str] = () if security.is_privileged else _MASKED
    read_only: Sequence[str] = () if security.is_privileged else _READ_ONLY
    context = cri.LinuxContainerSecurityContext(
        capabilities=cri.Capability(
            add_capabilities=list(security.added), drop_capabilities=list(security.dropped)
        ),
        privileged=security.is_privileged,
        namespace_options=_namespaces(sandbox, target),
        readonly_rootfs=security.has_read_only_root,
        supplemental_groups=list(security.groups),
        supplemental_groups_policy=cri.Strict if security.is_strict else cri.Merge,
        no_new_privs=security.no_new_privileges,
        masked_paths=list(hidden),
        readonly_paths=list(read_only),
        seccomp=_profile(security.seccomp),
    )
    if security.user is not None:
        context.run_as_user.value = security.user
    if security.group is not None:
        context.run_as_group.value = security.group
    return context
