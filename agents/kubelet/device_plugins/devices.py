"""The allocation of plugins' devices to containers.

    refused = await devices.give(pod)        reason and message; None: all containers have theirs
    needs = await devices.needs(uid, name)   variables, mounts and device files of a container
    devices.take_back(uid)

What a pod has stands in a file in its directory, from which a node that starts anew knows what is
in use. Init containers are over when the regular ones begin: their devices are given on.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import orjson

from kvstack.agents.kubelet.device_plugins.names import FILE
from kvstack.agents.kubelet.device_plugins.plugins import DevicePlugins, PluginError
from kvstack.agents.kubelet.runtime.runtime import DeviceFile, DeviceNeeds, Mount, StartError
from kvstack.apimachinery.objects.core.pod_resources import is_sidecar
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.quantity import parse
from kvstack.component.logger import Logger

if TYPE_CHECKING:
    from kvstack.agents.kubelet.device_plugins.gen import api_pb2 as api

Given: TypeAlias = dict[str, dict[str, Object]]
"""By container and resource: ids, and the plugin's answer on their use."""

REASON: Final = "UnexpectedAdmissionError"
_NO_START: Final = "CreateContainerConfigError"


class Devices:
    """The devices of a node's pods."""

    def __init__(
        self, plugins: DevicePlugins, directory: Callable[[str], Path], logger: Logger
    ) -> None:
        """directory: of a pod, by its uid."""
        self._plugins = plugins
        self._directory = directory
        self._logger = logger
        self._given: dict[str, Given] = {}

    def find(self, uids: Sequence[str]) -> None:
        """Read the devices of pods of an earlier kubelet."""
        for uid in uids:
            path = self._directory(uid) / FILE
            try:
                self._given[uid] = orjson.loads(path.read_bytes())
            except FileNotFoundError:
                continue
            except (OSError, ValueError) as error:
                text = "which devices a pod has cannot be read"
                self._logger.warning(text, path=str(path), error=str(error))

    async def give(self, pod: Object) -> tuple[str, str] | None:
        """Give a pod the devices that its containers ask for; None: it has them."""
        uid = pod["metadata"]["uid"]
        asked = [each for each in _requests(pod) if self._plugins.has(each[1])]
        if not asked or uid in self._given:
            return None
        allocated = self._given[uid] = {}
        free_again: dict[str, list[str]] = {}
        try:
            for name, resource, count, is_passing in asked:
                ids = await self._choose(resource, count, free_again.get(resource, []))
                if is_passing:
                    free_again[resource] = list(
                        dict.fromkeys([*free_again.get(resource, []), *ids])
                    )
                # In use from here on: other pods are admitted while the plugin is asked.
                allocated.setdefault(name, {})[resource] = {"ids": ids}
                answer = await self._plugins.allocate(resource, ids)
                allocated[name][resource] = {"ids": ids, "use": _use(answer)}
        except PluginError as error:
            del self._given[uid]
            return (REASON, f"Allocate failed due to {error}, which is unexpected")
        await asyncio.to_thread(_write, self._directory(uid) / FILE, orjson.dumps(allocated))
        return None

    async def _choose(self, resource: str, count: int, free_again: Sequence[str]) -> Sequence[str]:
        """Return devices for a container; PluginError: there are not enough."""
        first = list(free_again)[:count]
        missing = count - len(first)
        if not missing:
            return first
        free = self._free(resource)
        if len(free) < missing:
            raise PluginError(_too_few(resource, missing, len(free)))
        found = await self._plugins.preferred(resource, free, missing)
        now = self._free(resource)  # the plugin was asked meanwhile
        chosen = [each for each in found if each in now]
        chosen += [each for each in now if each not in chosen][: missing - len(chosen)]
        if len(chosen) < missing:
            raise PluginError(_too_few(resource, missing, len(now)))
        return [*first, *chosen]

    def _free(self, resource: str) -> list[str]:
        used = {
            number
            for pod in self._given.values()
            for container in pod.values()
            for number in container.get(resource, {}).get("ids", ())
        }
        return [each for each in self._plugins.healthy(resource) if each not in used]

    async def needs(self, uid: str, name: str) -> DeviceNeeds:
        """Return what a container needs for its devices, which are made ready; StartError."""
        variables: dict[str, str] = {}
        annotations: dict[str, str] = {}
        mounts: list[Mount] = []
        files: list[DeviceFile] = []
        names: list[str] = []
        for resource, each in self._given.get(uid, {}).get(name, {}).items():
            try:
                await self._plugins.prepare(resource, each["ids"])
            except PluginError as error:
                raise StartError(_NO_START, str(error)) from error
            use = each["use"]
            variables |= use["variables"]
            annotations |= use["annotations"]
            # As volumes of the kind hostPath: files of the machine keep the ids that they have.
            mounts += [
                Mount(source, target, is_read_only=is_read_only, is_host_path=True)
                for source, target, is_read_only in use["mounts"]
            ]
            files += [DeviceFile(*one) for one in use["files"]]
            names += use["names"]
        return DeviceNeeds(variables, mounts, files, annotations, names)

    def take_back(self, uid: str) -> None:
        """Free the devices of a pod."""
        if self._given.pop(uid, None) is not None:
            (self._directory(uid) / FILE).unlink(missing_ok=True)


def _too_few(resource: str, count: int, free: int) -> str:
    return (
        f"requested number of devices unavailable for {resource}. "
        f"Requested: {count}, Available: {free}"
    )


def _requests(pod: Object) -> list[tuple[str, str, int, bool]]:
    """Return container, resource, count, and whether it is over when regular containers begin."""
    spec = pod["spec"]
    inits = [(each, not is_sidecar(each)) for each in spec.get("initContainers") or ()]
    regular = [(each, False) for each in spec["containers"]]
    return [
        (container["name"], resource, count, is_passing)
        for container, is_passing in (*inits, *regular)
        for resource, text in _limits(container).items()
        if "/" in resource and (count := parse(str(text)).value()) > 0
    ]


def _limits(container: Object) -> Mapping[str, Any]:
    return (container.get("resources") or {}).get("limits") or {}


def _use(answer: "api.ContainerAllocateResponse") -> Object:
    return {
        "variables": dict(answer.envs),
        "annotations": dict(answer.annotations),
        "mounts": [[each.host_path, each.container_path, each.read_only] for each in answer.mounts],
        "files": [
            [each.host_path, each.container_path, each.permissions] for each in answer.devices
        ],
        "names": [each.name for each in answer.cdi_devices],
    }


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
    new = path.with_name(f"{path.name}.new")
    new.touch(mode=0o600)
    new.write_bytes(data)
    new.replace(path)
