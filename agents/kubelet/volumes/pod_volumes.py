"""Sets up the volumes of pods, and updates those with contents from the API.

    places = await volumes.set_up(pod, directory, addresses, objects)    name → (path, read only)
    await volumes.renew(pod, directory, addresses)              config maps, secrets, tokens
    volumes.is_stale(pod)       labels, annotations, config maps or secrets changed

VolumeError says which volume cannot be had, and why.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from kvstack.agents.client.api import Api
from kvstack.agents.kubelet.csi import volume as csi_volume
from kvstack.agents.kubelet.csi.csi_node import CsiNode
from kvstack.agents.kubelet.csi.mounting import Group, StepError
from kvstack.agents.kubelet.csi.uses import PendingError
from kvstack.agents.kubelet.pods import files
from kvstack.agents.kubelet.pods.environment import (
    Addresses,
    ConfigurationError,
    Objects,
    references,
    volume_references,
)
from kvstack.agents.kubelet.pods.sandboxes import memory_volume_bytes
from kvstack.agents.kubelet.volumes import directories
from kvstack.agents.kubelet.volumes.claims import Claims, device_path
from kvstack.agents.kubelet.volumes.pod_certificates import PodCertificates
from kvstack.agents.kubelet.volumes.service_tokens import ServiceTokens
from kvstack.agents.kubelet.volumes.trust_bundles import TrustBundles
from kvstack.agents.kubelet.volumes.volume_stats import VolumeStats, fill_of
from kvstack.agents.kubelet.volumes.watched_objects import (
    RESOURCES,
    NotKnownError,
    WatchedObjects,
)
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError
from kvstack.component.clock import Clock
from kvstack.component.logger import Logger

VolumePaths: TypeAlias = Mapping[str, tuple[Path, bool]]


class VolumeError(Exception):
    """A volume cannot be had."""

    def __init__(self, text: str, reason: str = "FailedMount") -> None:
        """text, reason: of the event that reports it."""
        super().__init__(text)
        self.reason = reason


def _not_set_up(name: str, problem: Exception) -> VolumeError:
    if isinstance(problem, StepError):
        return VolumeError(str(problem), problem.reason)
    return VolumeError(f'MountVolume.SetUp failed for volume "{name}" : {problem}')


class _Written:
    """The state of a pod's volumes."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        """Held while they are written: workers and housekeeping may do it at once."""
        self.fields: Mapping[str, str] = {}
        """The labels and annotations that they show."""
        self.local: dict[str, tuple[str, Path]] = {}
        """Claims and paths of volumes of the node itself, by name."""
        self.is_outdated = False
        """Whether another object that they show has changed since it was read."""


class PodVolumes:
    """The volumes of one node's pods."""

    def __init__(
        self,
        api: Api,
        clock: Clock,
        random: Callable[[], float],
        logger: Logger,
        allocatable: Mapping[str, str],
        node: Callable[[], Object],
        on_change: Callable[[str], None],
        csi: CsiNode,
    ) -> None:
        """Read objects by the node's API client; node: returns the Node.

        on_change: called with the uid of a pod that is stale.
        """
        self._api = api
        self._clock = clock
        self._random = random
        self._allocatable = allocatable
        self._written: dict[str, _Written] = {}  # by uid
        self._on_change = on_change
        self._watched = WatchedObjects(api, clock, random, logger, self._changed)
        self._tokens = ServiceTokens(api, clock, random)
        self._claims = Claims(api)
        self._csi = csi
        self._bundles = TrustBundles(api, clock, random, logger, self._changed)
        self._certificates = PodCertificates(api, clock, random, logger, node, self._changed)

    async def close(self) -> None:
        """Stop following changes."""
        for each in (self._watched, self._bundles, self._certificates):
            await each.close()

    def _changed(self, uid: str) -> None:
        if (known := self._written.get(uid)) is not None:
            known.is_outdated = True
            self._on_change(uid)

    async def set_up(
        self, pod: Object, directory: Path, addresses: Addresses, objects: Objects
    ) -> VolumePaths:
        """Return where the volumes of a pod are; VolumeError, PendingError, ApiError."""
        paths = {}
        pending: list[PendingError] = []
        written = self._written.setdefault(pod["metadata"]["uid"], _Written())
        async with written.lock:
            for volume in pod["spec"].get("volumes") or ():
                name = volume["name"]
                if "image" in volume:
                    continue  # which the runtime mounts
                try:
                    paths[name] = await self._set_up_volume(
                        pod, volume, objects, directory, addresses
                    )
                except PendingError as error:
                    pending.append(error)  # meanwhile the others
                except (ConfigurationError, OSError, StepError) as error:
                    raise _not_set_up(name, error) from error
            written.fields = files.changing_fields(pod)
        if pending:
            raise min(pending, key=lambda each: each.after_s)
        return paths

    def stats(self, uid: str) -> list[VolumeStats]:
        """Return how full the volumes of a pod are that are claimed, or a driver's."""
        stats = [
            VolumeStats(use.name, use.claim["metadata"]["name"] if use.claim else "", use.fill)
            for use in self._csi.volumes.of_pod(uid)
            if use.fill is not None
        ]
        written = self._written.get(uid)
        for name, (claim, path) in (written.local if written else {}).items():
            if (fill := fill_of(path)) is not None:
                stats.append(VolumeStats(name, claim, fill))
        return stats

    def is_stale(self, pod: Object) -> bool:
        """Whether a pod's volumes show outdated contents."""
        known = self._written.get(pod["metadata"]["uid"])
        if known is None:
            return bool(files.changing_fields(pod))
        return known.is_outdated or files.changing_fields(pod) != known.fields

    async def renew(self, pod: Object, directory: Path, addresses: Addresses) -> None:
        """Rewrite the volumes whose objects have changed."""
        volumes = pod["spec"].get("volumes") or ()
        if self._csi.volumes.of_pod(pod["metadata"]["uid"]) or any(map(_is_held, volumes)):
            objects = await self.objects(pod, are_fresh=False)
            with contextlib.suppress(PendingError):  # its pod is looked at when that is over
                await self.set_up(pod, directory, addresses, objects)

    def forget(self, uid: str) -> None:
        """Keep the tokens of a pod no longer, nor what its volumes show."""
        self._written.pop(uid, None)
        own = (self._watched, self._tokens, self._bundles, self._certificates)
        for each in (*own, self._claims, self._csi):
            each.forget(uid)

    async def objects(self, pod: Object, *, are_fresh: bool = True) -> Objects:
        """Return the config maps and secrets that a pod refers to.

        Those of its volumes are watched from now on. are_fresh: whether they are read in any case,
        and not read from their watches.
        """
        namespace, uid = pod["metadata"]["namespace"], pod["metadata"]["uid"]
        shown = volume_references(pod)
        written = self._written.setdefault(uid, _Written())
        written.is_outdated = False
        self._watched.follow(uid, {(kind, namespace, name) for kind, name in shown})
        objects: dict[tuple[str, str], Object | None] = {}
        try:
            for kind, name in sorted(references(pod) if are_fresh else shown):
                objects[kind, name] = await self._object(
                    (kind, namespace, name), is_fresh=are_fresh
                )
        except BaseException:
            written.is_outdated = True
            raise
        return objects

    async def _object(self, key: tuple[str, str, str], *, is_fresh: bool) -> Object | None:
        if not is_fresh:
            with contextlib.suppress(NotKnownError):  # its watch has only begun
                return self._watched.get(key)
        kind, namespace, name = key
        found = await self._read(RESOURCES[kind], namespace, name)
        self._watched.note(key, found)
        return found

    async def _read(self, resource: Any, namespace: str, name: str) -> Object | None:  # noqa: ANN401
        try:
            found: Object = await self._api.get(resource, namespace, name)
        except ApiError as error:
            if not error.is_not_found:
                raise
            return None
        return found

    async def _set_up_volume(
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
            asked = await self._requested_files(pod, volume)
            contents = files.contents(pod, volume, objects, addresses, asked, self._allocatable)
            path = await asyncio.to_thread(directories.written, directory, volume, contents, group)
            return path, True
        if "hostPath" in volume:
            return await asyncio.to_thread(directories.host_path, volume["hostPath"]), False
        if "csi" in volume:
            is_read_only = bool(volume["csi"].get("readOnly"))
            return await self._inline(pod, volume, group), is_read_only
        is_read_only, takes_group = False, True
        if "persistentVolumeClaim" in volume or "ephemeral" in volume:
            path, is_read_only, takes_group = await self._claimed(pod, volume, group)
        else:
            size = memory_volume_bytes(pod, volume, self._allocatable)
            path = await asyncio.to_thread(directories.empty_directory, directory, volume, size)
        if group is not None and takes_group and not is_read_only:
            policy = context.get("fsGroupChangePolicy") or "Always"
            await asyncio.to_thread(directories.give_to_group, path, group, policy)
        return path, is_read_only

    async def _claimed(
        self, pod: Object, volume: Object, group: int | None
    ) -> tuple[Path, bool, bool]:
        """Return the path of the volume that a claim is bound to; ConfigurationError.

        And whether it is only to be read, and whether it may be given to a group.
        """
        bound = await self._claims.bound(pod, volume)
        spec, is_read_only = bound.volume["spec"], bound.is_read_only
        if "csi" in spec:
            try:
                of_driver = csi_volume.of_claim(bound.volume, is_read_only=is_read_only)
            except ValueError as error:
                raise ConfigurationError(str(error)) from error
            name, claim = volume["name"], bound.claim
            path = await self._of_driver(pod, name, of_driver, group, claim)
            return path, is_read_only, False
        self._claims.take(bound, pod["metadata"]["uid"])
        if bound.is_block and ("local" in spec or "hostPath" in spec):
            device = await asyncio.to_thread(device_path, bound.volume)
            return device, is_read_only, False
        if "hostPath" in spec:
            path = await asyncio.to_thread(directories.host_path, spec["hostPath"])
            return path, is_read_only, False
        if "local" in spec:
            path = Path(spec["local"]["path"])
            if not await asyncio.to_thread(path.is_dir):
                raise ConfigurationError(f'path "{path}" does not exist')
            written = self._written[pod["metadata"]["uid"]]
            written.local[volume["name"]] = (bound.claim["metadata"]["name"], path)
            return path, is_read_only, True
        name = bound.volume["metadata"]["name"]
        raise ConfigurationError(f'volumes of the kind of "{name}" are not supported by this node')

    async def _inline(self, pod: Object, volume: Object, group: int | None) -> Path:
        """Return the path of a volume that a driver makes for a pod alone; ConfigurationError."""
        try:
            of_driver = csi_volume.of_pod(pod, volume)
        except ValueError as error:
            raise ConfigurationError(str(error)) from error
        return await self._of_driver(pod, volume["name"], of_driver, group, None)

    async def _of_driver(
        self,
        pod: Object,
        name: str,
        volume: csi_volume.Volume,
        group: int | None,
        claim: Object | None,
    ) -> Path:
        context = pod["spec"].get("securityContext") or {}
        its_group = Group(group, context.get("fsGroupChangePolicy") or "Always")
        path = Path(await self._csi.volumes.have(pod, name, volume, its_group, claim))
        # Of a device what the driver has put there, which may be a link to it.
        return await asyncio.to_thread(path.resolve) if volume.is_block else path

    async def _requested_files(self, pod: Object, volume: Object) -> dict[str, bytes]:
        """Return what a volume shows of what others answer, by path; ConfigurationError."""
        uid, name = pod["metadata"]["uid"], volume["name"]
        files_by_path: dict[str, bytes] = {}
        for number, each in enumerate((volume.get("projected") or {}).get("sources") or ()):
            if token := each.get("serviceAccountToken"):
                files_by_path[token["path"]] = await self._tokens.token(pod, name, token)
            if bundle := each.get("clusterTrustBundle"):
                files_by_path[bundle["path"]] = await self._bundles.anchors(uid, bundle)
            if source := each.get("podCertificate"):
                signed = await self._certificates.credential(pod, name, number, source)
                files_by_path |= files.of_certificate(source, signed.key, signed.chain)
        return files_by_path


def _is_held(volume: Object) -> bool:
    """Whether the contents of a volume come from the API."""
    return any(kind in volume for kind in files.FROM_API)
