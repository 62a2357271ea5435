"""The steps of mounting and unmounting a volume: records on disk, and calls of the driver.

    await mounting.wait_attached(volume)     ─► what attaching returned, for the driver
    await mounting.stage(volume, …);  await mounting.publish(pod, volume, …)
    await mounting.unpublish(published);  await mounting.unstage(staged)

StepError has the text of the event. Its `is_final` says whether the operation has ended:
what is not final may have been done, and is undone before it counts as undone.
"""

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kvstack.agents.client.api import Api
from kvstack.agents.client.built_in import NODES, VOLUME_ATTACHMENTS
from kvstack.agents.client.transport import UnreachableError
from kvstack.agents.kubelet.csi import volume as rules
from kvstack.agents.kubelet.csi.driver_error import DriverError
from kvstack.agents.kubelet.csi.drivers import Drivers
from kvstack.agents.kubelet.csi.secrets import SecretError, Secrets
from kvstack.agents.kubelet.csi.volume import EPHEMERAL, SecretName, Volume
from kvstack.agents.kubelet.csi.volume_data import Published, Staged, VolumePaths, staged_of
from kvstack.agents.kubelet.volumes import directories
from kvstack.agents.kubelet.volumes.service_tokens import ServiceTokens
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError
from kvstack.component.logger import Logger

if TYPE_CHECKING:
    from kvstack.agents.kubelet.csi.node_client import Abilities, Call


FAILED_MOUNT: Final = "FailedMount"
FAILED_MAP: Final = "FailedMapVolume"
_LOOK_S: Final = 0.1
_LOOK_MAX_S: Final = 2.0
_REPORT_AFTER_S: Final = 123.0
_THREADS: Final = 4
_TOKENS: Final = "csi.storage.k8s.io/serviceAccount.tokens"


class StepError(Exception):
    """A step failed."""

    def __init__(self, text: str, *, reason: str = FAILED_MOUNT, is_final: bool = True) -> None:
        """text: of the event that reports it, whose reason is given."""
        super().__init__(text)
        self.reason = reason
        self.is_final = is_final


class Group(NamedTuple):
    """The fsGroup of a pod."""

    number: int | None
    policy: str


class Mounting:
    """The steps of one node."""

    def __init__(
        self,
        api: Api,
        drivers: Drivers,
        paths: VolumePaths,
        secrets: Secrets,
        tokens: ServiceTokens,
        logger: Logger,
        node: str,
        report: Callable[[], None],
    ) -> None:
        """report: updates the volumes in use in the node's status."""
        self._api = api
        self._drivers = drivers
        self._paths = paths
        self._secrets_of = secrets
        self._tokens = tokens
        self._logger = logger
        self._node = node
        self._report = report
        # Of its own: a file system that hangs holds up no thread that others need.
        self._threads = ThreadPoolExecutor(_THREADS, "volumes of CSI drivers")

    def close(self) -> None:
        """Start no further work on the disk."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def on_disk(self, work: Callable[..., Any], *arguments: Any) -> Any:  # noqa: ANN401
        """Return what work on the disk returns; OSError."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, work, *arguments)

    # Having it.

    async def wait_attached(self, volume: Volume) -> Mapping[str, str]:
        """Return what attaching a volume returned, once it is attached to the node; StepError."""
        begun_s = asyncio.get_running_loop().time()
        wait_s, is_told = _LOOK_S, False
        while not await self._is_attached(volume):
            self._report()
            if not is_told and asyncio.get_running_loop().time() - begun_s > _REPORT_AFTER_S:
                is_told = True
                text = "a volume is not attached to this node"
                self._logger.warning(text, volume=volume.name, driver=volume.driver)
            await asyncio.sleep(wait_s)
            wait_s = min(wait_s * 1.5, _LOOK_MAX_S)
        step = "MountVolume.WaitForAttach failed"
        try:
            name = volume.attachment(self._node)
            attachment = await self._api.get(VOLUME_ATTACHMENTS, "", name)
        except (ApiError, UnreachableError) as error:
            raise _step_error(volume, step, str(error)) from error
        if attachment["metadata"].get("deletionTimestamp"):
            raise _step_error(volume, step, "volume attachment is being deleted")
        return (attachment.get("status") or {}).get("attachmentMetadata") or {}

    async def _is_attached(self, volume: Volume) -> bool:
        """Whether the node's status has a volume as in use, and then as attached."""
        try:
            node = await self._api.get(NODES, "", self._node)
        except (ApiError, UnreachableError) as error:
            self._logger.debug("failed to read the node", error=str(error))
            return False
        status = node.get("status") or {}
        attached = {each["name"] for each in status.get("volumesAttached") or ()}
        in_use = status.get("volumesInUse") or ()
        return volume.unique_name in attached and volume.unique_name in in_use

    async def abilities(self, volume: Volume) -> "Abilities":
        """Return what the driver of a volume can do; StepError."""
        step, problem = "MountVolume.MountDevice failed", "attacher.MountDevice failed to create"
        what = f"{problem} newCsiDriverClient"
        if volume.lifecycle == EPHEMERAL:
            step, what = "MountVolume.SetUp failed", "mounter.SetUpAt failed to get CSI client"
        elif volume.is_block:
            step, what = (
                "MapVolume.SetUpDevice failed",
                "blockMapper.SetUpDevice failed to get CSI client",
            )
        try:
            client = self._drivers.client(volume.driver)
        except DriverError as error:
            raise _step_error(volume, step, f"kubernetes.io/csi: {what}: {error}") from error
        try:
            return await client.abilities()
        except DriverError as error:
            raise _step_error(volume, step, str(error)) from error

    async def stage(
        self,
        volume: Volume,
        staged: Staged,
        context: Mapping[str, str],
        abilities: "Abilities",
        group: Group,
    ) -> None:
        """Make a volume ready on the node; StepError."""
        step = (
            "MapVolume.SetUpDevice failed" if volume.is_block else "MountVolume.MountDevice failed"
        )
        secrets = await self._secrets(volume, volume.stage_secret, "NodeStageSecretRef", step)
        call = _call(volume, abilities, context, secrets, group)
        try:
            client = self._drivers.client(volume.driver)
            await self.on_disk(self._paths.note_staged, staged)
            await client.stage(volume, str(self._paths.staging(staged)), call)
        except (DriverError, OSError) as error:
            is_final = not isinstance(error, DriverError) or error.is_final
            if is_final:
                await self._clean(self._paths.forget_staged, staged)
            raise _step_error(volume, step, str(error), is_final=is_final) from error

    async def publish(
        self,
        pod: Object,
        volume: Volume,
        published: Published,
        context: Mapping[str, str],
        abilities: "Abilities",
        group: Group,
        *,
        is_again: bool,
    ) -> None:
        """Mount a volume for a pod; StepError. is_again: it is, or may be, mounted already."""
        step = "MapVolume.MapPodDevice failed" if volume.is_block else "MountVolume.SetUp failed"
        obj = self._drivers.known_object(volume.driver)
        secrets = await self._secrets(volume, volume.publish_secret, "NodePublishSecretRef", step)
        attributes = {**volume.attributes, **rules.pod_attributes(pod, volume, obj)}
        tokens = await self._tokens_of(pod, volume, obj, step)
        if obj is not None and obj["spec"].get("serviceAccountTokenInSecrets"):
            secrets = {**secrets, **tokens}
        else:
            attributes |= tokens
        call = _call(volume, abilities, context, secrets, group)
        has_stage = abilities.stages and volume.lifecycle != EPHEMERAL
        staging = str(self._paths.staging(staged_of(published))) if has_stage else ""
        try:
            client = self._drivers.client(volume.driver)
            await self.on_disk(self._paths.note_published, published)
            path = str(self._paths.target(published))
            await client.publish(volume, path, staging, attributes, call)
        except (DriverError, OSError) as error:
            is_final = not isinstance(error, DriverError) or error.is_final
            if is_final and not is_again:
                await self._clean(self._paths.forget_published, published)
            raise _step_error(volume, step, str(error), is_final=is_final) from error
        if not abilities.mounts_for_group and group.number is not None and not volume.is_block:
            await self._give_to_group(volume, published, obj, group)

    async def _give_to_group(
        self, volume: Volume, published: Published, obj: Object | None, group: Group
    ) -> None:
        if not rules.gives_group(volume, obj):
            return
        path = self._paths.target(published)
        try:
            await self.on_disk(directories.give_to_group, path, group.number, group.policy)
        except OSError as error:
            text = f"applyFSGroup failed for vol {volume.handle}: {error}"
            step = "MountVolume.SetUp failed"
            raise _step_error(volume, step, text, is_final=False) from error

    async def _clean(self, forget: Callable[[Any], None], what: Published | Staged) -> None:
        """Remove what was made for a step that failed; what cannot be is left for the next one."""
        try:
            await self.on_disk(forget, what)
        except OSError as error:
            text = "what was made for a volume could not be removed"
            self._logger.warning(text, driver=what.driver, error=str(error))

    async def _secrets(
        self, volume: Volume, secret: SecretName | None, field: str, step: str
    ) -> Mapping[str, str]:
        """Return what is in a secret that a driver is given; StepError."""
        if secret is None:
            return {}
        try:
            return await self._secrets_of.read(secret)
        except SecretError as error:
            text = f"fetching {field} {secret.namespace}/{secret.name} failed: {error}"
            raise _step_error(volume, step, text) from error

    async def _tokens_of(
        self, pod: Object, volume: Volume, obj: Object | None, step: str
    ) -> Mapping[str, str]:
        requests = (obj or {}).get("spec", {}).get("tokenRequests")
        if not requests or volume.is_block:
            return {}
        try:
            text = await self._tokens.for_driver(pod, volume.driver, requests)
        except (ApiError, UnreachableError) as error:
            what = "mounter.SetUpAt failed to get service account token attributes"
            raise _step_error(volume, step, f"kubernetes.io/csi: {what}: {error}") from error
        return {_TOKENS: text}

    # Giving it back.

    async def unpublish(self, published: Published) -> None:
        """Unmount a volume of a pod; DriverError, OSError."""
        client = self._drivers.client(published.driver)
        await client.unpublish(published.handle, str(self._paths.target(published)))
        await self.on_disk(self._paths.forget_published, published)

    async def unstage(self, staged: Staged) -> None:
        """Undo what staging did; DriverError, OSError."""
        client = self._drivers.client(staged.driver)
        if (await client.abilities()).stages:
            await client.unstage(staged.handle, str(self._paths.staging(staged)))
        await self.on_disk(self._paths.forget_staged, staged)

    async def forget_published(self, published: Published) -> None:
        """Remove what was made for a volume that was never published; OSError."""
        await self.on_disk(self._paths.forget_published, published)


def _call(
    volume: Volume,
    abilities: "Abilities",
    context: Mapping[str, str],
    secrets: Mapping[str, str],
    group: Group,
) -> "Call":
    from kvstack.agents.kubelet.csi.node_client import Call  # by now there is a driver

    has_group = abilities.mounts_for_group and not volume.is_block
    return Call(abilities, context, secrets, group.number if has_group else None)


def _step_error(volume: Volume, step: str, text: str, *, is_final: bool = True) -> StepError:
    reason = FAILED_MAP if step.startswith("MapVolume") else FAILED_MOUNT
    return StepError(
        f'{step} for volume "{volume.name}" : {text}', reason=reason, is_final=is_final
    )
