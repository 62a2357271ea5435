"""The configuration of a container before it starts: variables, mounts, privileges and limits."""

import posixpath
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from kvstack.agents.client.object_store import ObjectStore
from kvstack.agents.kubelet.pods.environment import (
    Addresses,
    Objects,
    expand,
    variables,
)
from kvstack.agents.kubelet.pods.sandboxes import (
    NodeSettings,
    limits_of,
    sandbox_of,
    security_of,
)
from kvstack.agents.kubelet.runtime.runtime import NO_DEVICES, ContainerConfig, DeviceNeeds
from kvstack.agents.kubelet.volumes import directories
from kvstack.agents.kubelet.volumes.pod_volumes import VolumePaths
from kvstack.apimachinery.objects.json_object import Object

_NO_IMAGES: Final[Mapping[str, tuple[str, str]]] = {}


class Preparation:
    """Prepares containers of one node."""

    def __init__(
        self, services: ObjectStore, settings: NodeSettings, allocatable: Mapping[str, str]
    ) -> None:
        """services: those of environment variables."""
        self._services = services
        self._settings = settings
        self._allocatable = allocatable

    def container_config(
        self,
        pod: Object,
        container: Object,
        attempt: int,
        directory: Path,
        volumes: VolumePaths,
        objects: Objects,
        addresses: Addresses,
        *,
        image_id: str = "",
        target: str = "",
        handler: str = "",
        images: Mapping[str, tuple[str, str]] = _NO_IMAGES,
        devices: DeviceNeeds = NO_DEVICES,
        services: Sequence[Object] | None = None,
    ) -> ContainerConfig:
        """Return what the runtime is to start.

        images: of volumes that are images, by name: reference and id. services: that
        variables tell of, if it is called in a thread. Raises ConfigurationError, OSError.
        """
        environment = variables(
            pod,
            container,
            objects,
            self.seen_services(pod) if services is None else services,
            addresses,
            self._allocatable,
            directories.env_files(container, volumes),
        )
        environment = {**environment, **devices.variables}
        mounts = directories.mounts(pod, container, volumes, environment, images)
        mounts += devices.mounts
        block_devices = directories.devices(container, volumes)
        devices = devices._replace(files=[*devices.files, *block_devices])
        if all(posixpath.normpath(each.target) != "/etc/hosts" for each in mounts):
            domain = self._settings.names.cluster_domain
            mounts.append(directories.write_hosts(directory, pod, addresses.pods, domain))
        default = self._settings.seccomp_default
        return ContainerConfig(
            sandbox_of(pod, self._settings, handler),
            container["name"],
            attempt,
            container["image"],
            image_id,
            command=[expand(each, environment) for each in container.get("command") or ()],
            arguments=[expand(each, environment) for each in container.get("args") or ()],
            environment=environment,
            directory=container.get("workingDir") or "",
            mounts=mounts,
            security=security_of(
                pod,
                container,
                seccomp_default=default,
                seccomp_root=self._settings.seccomp_root,
            ),
            limits=limits_of(pod, container, self._settings.memory_bytes),
            has_tty=bool(container.get("tty")),
            has_stdin=bool(container.get("stdin")),
            has_stdin_once=bool(container.get("stdinOnce")),
            target=target,
            termination_path=container.get("terminationMessagePath") or "/dev/termination-log",
            falls_back_to_logs=container.get("terminationMessagePolicy") == "FallbackToLogsOnError",
            devices=devices,
        )

    def seen_services(self, pod: Object) -> list[Object]:
        """Return the services of environment variables: the API's, and those of the namespace."""
        kubernetes = self._services.get("default/kubernetes")
        own: list[Object] = []
        if pod["spec"].get("enableServiceLinks", True):
            own = self._services.in_namespace(pod["metadata"]["namespace"])
        first = [] if kubernetes is None or kubernetes in own else [kubernetes]
        return [*first, *own]
