"""The claims of pods, and the volumes that they are bound to.

bound = await claims.bound(pod, pod_volume)       ConfigurationError: it is not bound
claims.take(bound, uid);  claims.forget(uid)      of volumes that one pod alone may have

device = device_path(bound.volume)                of a volume that is a block device
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from kvstack.agents.client.api import Api
from kvstack.agents.client.built_in import PERSISTENT_VOLUME_CLAIMS, PERSISTENT_VOLUMES
from kvstack.agents.client.resource_type import ResourceType
from kvstack.agents.kubelet.pods.environment import ConfigurationError
from kvstack.agents.kubelet.pods.sandboxes import containers_of
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError

_ONE_POD: Final = ["ReadWriteOncePod"]
_BLOCK: Final = "Block"


class Bound(NamedTuple):
    """A claim of a pod, and its volume."""

    claim: Object
    volume: Object
    is_read_only: bool

    @property
    def is_block(self) -> bool:
        """Whether it is a block device."""
        return (self.volume["spec"].get("volumeMode") or "Filesystem") == _BLOCK


class Claims:
    """The claims of one node's pods."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._taken: dict[str, str] = {}
        """Uids of pods, by the names of volumes that they alone may have."""

    async def bound(self, pod: Object, volume: Object) -> Bound:
        """Return the claim that a volume of a pod names, which is bound; ConfigurationError."""
        meta = pod["metadata"]
        source = volume.get("persistentVolumeClaim") or {}
        space, name = (
            meta["namespace"],
            source.get("claimName") or f"{meta['name']}-{volume['name']}",
        )
        claim = await self._read(PERSISTENT_VOLUME_CLAIMS, space, name)
        if claim is None:
            raise ConfigurationError(f'persistentvolumeclaim "{name}" not found')
        if "ephemeral" in volume and not _is_owned(claim, pod):
            raise ConfigurationError(
                f"PVC {space}/{name} was not created for pod {space}/{meta['name']} "
                "(pod is not owner)"
            )
        volume_name = claim["spec"].get("volumeName")
        if not volume_name or (claim.get("status") or {}).get("phase") != "Bound":
            raise ConfigurationError(f'persistentvolumeclaim "{name}" is not bound')
        persistent = await self._read(PERSISTENT_VOLUMES, "", volume_name)
        if persistent is None:
            raise ConfigurationError(f'persistentvolume "{volume_name}" not found')
        bound = Bound(claim, persistent, bool(source.get("readOnly")))
        _check_mode(pod, volume["name"], is_block=bound.is_block)
        return bound

    def take(self, bound: Bound, uid: str) -> None:
        """Reserve a ReadWriteOncePod volume for a pod of the node; ConfigurationError."""
        if bound.volume["spec"].get("accessModes") != _ONE_POD:
            return
        if self._taken.setdefault(bound.volume["metadata"]["name"], uid) != uid:
            raise ConfigurationError(
                "volume uses the ReadWriteOncePod access mode and is already in use by another pod"
            )

    def forget(self, uid: str) -> None:
        """Free the volumes of a pod."""
        for name in [name for name, user in self._taken.items() if user == uid]:
            del self._taken[name]

    async def _read(self, resource: ResourceType, namespace: str, name: str) -> Object | None:
        try:
            obj: Object = await self._api.get(resource, namespace, name)
        except ApiError as error:
            if not error.is_not_found:
                raise
            return None
        return obj


def _is_owned(claim: Object, pod: Object) -> bool:
    """Whether a claim was made for a pod."""
    owners = claim["metadata"].get("ownerReferences") or ()
    return any(each.get("controller") and each["uid"] == pod["metadata"]["uid"] for each in owners)


def _check_mode(pod: Object, name: str, *, is_block: bool) -> None:
    """Refuse block devices as mounts, and file systems as devices; ConfigurationError."""
    field, mode = ("volumeMounts", "Block") if is_block else ("volumeDevices", "Filesystem")
    if name in _names_in(pod, field):
        text = f"volume {name} has volumeMode {mode}, but is specified in {field}"
        raise ConfigurationError(text)


def _names_in(pod: Object, field: str) -> Iterator[str]:
    return (each["name"] for one in containers_of(pod) for each in one.get(field) or ())


def device_path(volume: Object) -> Path:
    """Return the block device of a volume of the node itself; ConfigurationError."""
    spec = volume["spec"]
    path = Path((spec.get("local") or spec.get("hostPath") or {}).get("path", ""))
    if not path.is_block_device():
        raise ConfigurationError(f'path "{path}" is not a block device')
    return path
