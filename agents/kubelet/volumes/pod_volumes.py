"""Sets up the volumes of pods, and renews what the API holds of them.

    places = await volumes.set_up(pod, directory, addresses, objects)    name → (path, read only)
    await volumes.renew(pod, directory, addresses)              config maps, secrets, tokens

A token is asked for anew after 80 % of its life, or a day. VolumeError says which volume cannot be
had, and why.
"""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

from kvstack.agents.client.api import Api
from kvstack.agents.client.built_in import (
    CONFIG_MAPS,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    SECRETS,
    SERVICE_ACCOUNTS,
)
from kvstack.agents.client.timing import Clock
from kvstack.agents.kubelet.pods import files
from kvstack.agents.kubelet.pods.environment import (
    Addresses,
    ConfigurationError,
    Objects,
    references,
)
from kvstack.agents.kubelet.pods.sandboxes import memory_volume_bytes
from kvstack.agents.kubelet.volumes import directories
from kvstack.apiserver.objects.status import ApiError
from kvstack.apiserver.objects.times import parse_time

Object: TypeAlias = dict[str, Any]
Places: TypeAlias = Mapping[str, tuple[Path, bool]]

_RESOURCES: Final = {"ConfigMap": CONFIG_MAPS, "Secret": SECRETS}
_NOT_FOUND: Final = 404
_DAY_S: Final = 86_400.0
_USED: Final = 0.8


class VolumeError(Exception):
    """A volume cannot be had."""

    def __init__(self, name: str, text: str) -> None:
        """Say which, and why."""
        super().__init__(f'MountVolume.SetUp failed for volume "{name}" : {text}')


class _Token(NamedTuple):
    text: str
    until_s: float
    """When another is asked for."""


class PodVolumes:
    """The volumes of one node's pods."""

    def __init__(
        self, api: Api, clock: Clock, chance: Callable[[], float], allocatable: Mapping[str, str]
    ) -> None:
        """Read with the node's API."""
        self._api = api
        self._clock = clock
        self._chance = chance
        self._allocatable = allocatable
        self._tokens: dict[tuple[str, str, str], _Token] = {}

    async def set_up(
        self, pod: Object, directory: Path, addresses: Addresses, objects: Objects
    ) -> Places:
        """Return where the volumes of a pod are; VolumeError, ApiError."""
        places = {}
        for volume in pod["spec"].get("volumes") or ():
            name = volume["name"]
            if "image" in volume:
                continue  # which the runtime mounts
            try:
                places[name] = await self._place(pod, volume, objects, directory, addresses)
            except (ConfigurationError, OSError) as error:
                raise VolumeError(name, str(error)) from error
        return places

    async def renew(self, pod: Object, directory: Path, addresses: Addresses) -> None:
        """Write what changed of the volumes whose contents the API holds."""
        if any(_is_held(each) for each in pod["spec"].get("volumes") or ()):
            await self.set_up(pod, directory, addresses, await self.objects(pod))

    def forget(self, uid: str) -> None:
        """Keep the tokens of a pod no longer."""
        for key in [key for key in self._tokens if key[0] == uid]:
            del self._tokens[key]

    async def objects(self, pod: Object) -> Objects:
        """Read the config maps and secrets that a pod refers to."""
        found: dict[tuple[str, str], Object | None] = {}
        for kind, name in sorted(references(pod)):
            found[kind, name] = await self._read(
                _RESOURCES[kind], pod["metadata"]["namespace"], name
            )
        return found

    async def _read(self, resource: Any, namespace: str, name: str) -> Object | None:  # noqa: ANN401
        try:
            found: Object = await self._api.get(resource, namespace, name)
        except ApiError as error:
            if error.code != _NOT_FOUND:
                raise
            return None
        return found

    async def _place(
        self,
        pod: Object,
        volume: Object,
        objects: Objects,
        directory: Path,
        addresses: Addresses,
    ) -> tuple[Path, bool]:
        context = pod["spec"].get("securityContext") or {}
        group = context.get("fsGroup")
        if _is_held(volume):
            tokens = await self._volume_tokens(pod, volume)
            contents = files.contents(pod, volume, objects, addresses, tokens, self._allocatable)
            made = await asyncio.to_thread(directories.written, directory, volume, contents, group)
            return made, True
        if "hostPath" in volume:
            return await asyncio.to_thread(directories.host_path, volume["hostPath"]), False
        is_read_only, takes_group = False, True
        if "persistentVolumeClaim" in volume or "ephemeral" in volume:
            made, is_read_only, takes_group = await self._claimed(pod, volume)
        else:
            size = memory_volume_bytes(pod, volume, self._allocatable)
            made = await asyncio.to_thread(directories.empty_directory, directory, volume, size)
        if group is not None and takes_group and not is_read_only:
            policy = context.get("fsGroupChangePolicy") or "Always"
            await asyncio.to_thread(directories.give_to_group, made, group, policy)
        return made, is_read_only

    async def _claimed(self, pod: Object, volume: Object) -> tuple[Path, bool, bool]:
        """Return the place of the volume that a claim is bound to; ConfigurationError.

        And whether it is only to be read, and whether it may be given to a group.
        """
        meta = pod["metadata"]
        source = volume.get("persistentVolumeClaim") or {}
        name = source.get("claimName") or f"{meta['name']}-{volume['name']}"
        claim = await self._read(PERSISTENT_VOLUME_CLAIMS, meta["namespace"], name)
        if claim is None:
            raise ConfigurationError(f'persistentvolumeclaim "{name}" not found')
        if "ephemeral" in volume and not _is_owned(claim, pod):
            space = meta["namespace"]
            raise ConfigurationError(
                f"PVC {space}/{name} was not created for pod {space}/{meta['name']} "
                "(pod is not owner)"
            )
        bound = claim["spec"].get("volumeName")
        if not bound or (claim.get("status") or {}).get("phase") != "Bound":
            raise ConfigurationError(f'persistentvolumeclaim "{name}" is not bound')
        found = await self._read(PERSISTENT_VOLUMES, "", bound)
        if found is None:
            raise ConfigurationError(f'persistentvolume "{bound}" not found')
        is_read_only = bool(source.get("readOnly"))
        spec = found["spec"]
        if "hostPath" in spec:
            place = await asyncio.to_thread(directories.host_path, spec["hostPath"])
            return place, is_read_only, False
        if "local" in spec:
            path = Path(spec["local"]["path"])
            if not await asyncio.to_thread(path.is_dir):
                raise ConfigurationError(f'path "{path}" does not exist')
            return path, is_read_only, True
        raise ConfigurationError(f'volumes of the kind of "{bound}" are not supported by this node')

    # Tokens.

    async def _volume_tokens(self, pod: Object, volume: Object) -> dict[str, str]:
        """Return the tokens of a volume by path, those that are kept or fresh ones."""
        now = self._clock.now_s()
        found = {}
        for asked in files.token_requests(volume):
            key = (pod["metadata"]["uid"], volume["name"], asked["path"])
            known = self._tokens.get(key)
            if known is None or known.until_s <= now:
                known = self._tokens[key] = await self._ask(pod, asked, now)
            found[asked["path"]] = known.text
        return found

    async def _ask(self, pod: Object, asked: Object, now_s: float) -> _Token:
        meta = pod["metadata"]
        owner = {"kind": "Pod", "apiVersion": "v1", "name": meta["name"], "uid": meta["uid"]}
        spec: Object = {"boundObjectRef": owner}
        spec["expirationSeconds"] = asked.get("expirationSeconds", 3600)
        spec["audiences"] = [asked["audience"]] if asked.get("audience") else []
        answer = await self._api.create(
            SERVICE_ACCOUNTS,
            meta["namespace"],
            {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec},
            name=pod["spec"].get("serviceAccountName") or "default",
            subresource="token",
        )
        status = answer["status"]
        ends_s = parse_time(status["expirationTimestamp"]).seconds
        life_s = min((ends_s - now_s) * _USED, _DAY_S)
        return _Token(status["token"], now_s + life_s - 10 * self._chance())


def _is_owned(claim: Object, pod: Object) -> bool:
    """Whether a claim was made for a pod."""
    owners = claim["metadata"].get("ownerReferences") or ()
    return any(each.get("controller") and each["uid"] == pod["metadata"]["uid"] for each in owners)


def _is_held(volume: Object) -> bool:
    """Whether the API holds the contents of a volume."""
    return any(kind in volume for kind in files.FROM_API)
