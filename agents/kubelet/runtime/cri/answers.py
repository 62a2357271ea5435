"""An engine's answers as values of the runtime: images, containers, usage, features.

`specs` is the other direction. Labels and annotations are those that it has set.
"""

from pathlib import Path

from kvstack.agents.kubelet.runtime.cri import specs
from kvstack.agents.kubelet.runtime.cri.gen import api_pb2 as cri
from kvstack.agents.kubelet.runtime.runtime import (
    NO_COUNTS,
    Abilities,
    Container,
    Counts,
    Image,
    Usage,
    User,
)
from kvstack.agents.kubelet.runtime.termination_message import termination_message


def abilities_of(answer: cri.StatusResponse) -> Abilities:
    """Return what an engine says that it can do."""
    handlers = {
        each.name: {
            "recursiveReadOnlyMounts": each.features.recursive_read_only_mounts,
            "userNamespaces": each.features.user_namespaces,
        }
        for each in answer.runtime_handlers
    }
    features = answer.features
    has_features = answer.HasField("features")
    return Abilities(handlers, features.supplemental_groups_policy if has_features else None)


def problem_of(status: cri.RuntimeStatus) -> str:
    """Return why an engine is not ready; empty: it is."""
    conditions = {each.type: each for each in status.conditions}
    problems = []
    for type_, what in (("RuntimeReady", ""), ("NetworkReady", " network")):
        found = conditions.get(type_)
        if found is not None and not found.status:
            problems.append(
                f"container runtime{what} not ready: {type_}=false reason:{found.reason} "
                f"message:{found.message}"
            )
    if not problems:
        return ""
    return problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"


def image_of(image: cri.Image) -> Image:
    """Return an image of an engine."""
    user = image.username or (str(image.uid.value) if image.HasField("uid") else "")
    names = [*image.repo_digests, *image.repo_tags]
    return Image(image.id, names, image.size, user, is_pinned=image.pinned)


def container_of(status: cri.ContainerStatus) -> Container:
    """Return a container; whether it runs, and how it ended, is not read."""
    labels, annotations = status.labels, status.annotations
    return Container(
        status.id,
        labels[specs.POD_UID],
        labels[specs.CONTAINER_NAME],
        status.metadata.attempt,
        status.image.image,
        status.image_ref,
        (status.started_at or status.created_at) / 1e9,
        log=Path(status.log_path),
        has_tty=specs.TTY in annotations,
        spec_image=annotations.get(specs.IMAGE, ""),
        user=_user(status),
    )


def _user(status: cri.ContainerStatus) -> User | None:
    if not status.HasField("user") or not status.user.HasField("linux"):
        return None  # engines before 2.0 do not say
    found = status.user.linux
    return User(found.uid, found.gid, tuple(found.supplemental_groups))


def termination_message_of(status: cri.ContainerStatus) -> str:
    """Return what a container that has ended left to say; it reads files of the node."""
    path = status.annotations.get(specs.MESSAGE_PATH, "")
    found = [Path(each.host_path) for each in status.mounts if each.container_path == path]
    policy = status.annotations.get(specs.MESSAGE_POLICY)
    return termination_message(
        found[-1] if found else None,
        Path(status.log_path),
        falls_back=bool(status.exit_code) and policy == "FallbackToLogsOnError",
    )


def usage_of(container: Container, used: cri.ContainerStats) -> Usage:
    """Return what a container uses."""
    memory, layer = used.memory, used.writable_layer
    working = memory.working_set_bytes.value
    return Usage(
        container,
        used.cpu.usage_core_nano_seconds.value,
        memory.usage_bytes.value or working,
        working,
        memory.rss_bytes.value,
        memory.page_faults.value,
        memory.major_page_faults.value,
        layer.used_bytes.value,
        layer.inodes_used.value,
        counts=_counts_of(used),
    )


def _counts_of(used: cri.ContainerStats) -> Counts:
    """Return what an engine says besides: of swap alone, and not every one does."""
    swap = used.swap
    if not swap.HasField("swap_usage_bytes"):
        return NO_COUNTS
    return Counts(swap_bytes=swap.swap_usage_bytes.value)
