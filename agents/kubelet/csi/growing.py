"""Expands volumes on the node, and writes the result to their claims (rules: `expansion`).

    if growing.is_due(growth, volume, claim):
        await growing.grow(growth, volume, published, pod, claim)

GrowthError says why it did not. A driver that does not let volumes grow while they are in use is
not asked again on this node until the volume is mounted anew.
"""

from typing import TYPE_CHECKING, Final

from kvstack.agents.client.api import Api
from kvstack.agents.client.built_in import PERSISTENT_VOLUME_CLAIMS
from kvstack.agents.client.event_recorder import EventRecorder
from kvstack.agents.client.transport import UnreachableError
from kvstack.agents.kubelet.csi import expansion
from kvstack.agents.kubelet.csi.driver_error import DriverError
from kvstack.agents.kubelet.csi.drivers import Drivers
from kvstack.agents.kubelet.csi.secrets import SecretError, Secrets
from kvstack.agents.kubelet.csi.volume import Volume
from kvstack.agents.kubelet.csi.volume_data import Published, VolumePaths, staged_of
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apimachinery.schema.resource import STRATEGIC_MERGE_PATCH
from kvstack.component.clock import Clock
from kvstack.component.logger import Logger

if TYPE_CHECKING:
    from collections.abc import Mapping


FAILED: Final = "FileSystemResizeFailed"
SUCCEEDED: Final = "FileSystemResizeSuccessful"


class GrowthError(Exception):
    """A volume did not grow on the node."""


class Growth:
    """The size of a pod's volume on this node."""

    def __init__(self) -> None:
        self.size_bytes = 0
        """0: unknown."""
        self.is_refused = False
        """Whether its driver cannot expand it while it is in use."""
        self.has_failed = False


class Growing:
    """Lets the volumes of one node grow."""

    def __init__(
        self,
        api: Api,
        drivers: Drivers,
        paths: VolumePaths,
        secrets: Secrets,
        recorder: EventRecorder,
        clock: Clock,
        logger: Logger,
        node: str,
    ) -> None:
        self._api = api
        self._drivers = drivers
        self._paths = paths
        self._secrets = secrets
        self._recorder = recorder
        self._clock = clock
        self._logger = logger
        self._node = node

    def is_due(self, growth: Growth, volume: Volume, claim: Object) -> bool:
        """Whether a volume is to grow now."""
        if not growth.size_bytes:
            growth.size_bytes = expansion.size_of_claim(claim)
        return not growth.is_refused and expansion.is_due(claim, volume, growth.size_bytes)

    async def grow(
        self, growth: Growth, volume: Volume, published: Published, pod: Object, claim: Object
    ) -> None:
        """Expand a volume that is due; GrowthError."""
        if volume.is_read_only:
            text = "MountVolume.NodeExpandVolume failed"
            text = f'{text} for volume "{volume.name}" requested read-only file system'
            self._report(pod, claim, "Warning", FAILED, text)
            growth.is_refused = True
            return
        is_written = expansion.is_written(claim, volume)
        try:
            if not is_written:
                claim = await self._write(claim, expansion.begun(claim))
            await self._expand(volume, published)
        except DriverError as error:
            await self._failed(growth, volume, claim, error, is_written=is_written)
            return
        except (ApiError, UnreachableError, SecretError) as error:
            raise GrowthError(str(error)) from error
        growth.size_bytes, growth.has_failed = expansion.size_of(volume), False
        text = f'MountVolume.NodeExpandVolume succeeded for volume "{volume.name}" {self._node}'
        self._report(pod, claim, "Normal", SUCCEEDED, text)
        if not is_written:
            try:
                await self._write(claim, expansion.done(claim, volume))
            except (ApiError, UnreachableError) as error:
                growth.size_bytes = 0  # so that it is done, and written, again
                raise GrowthError(f"update pvc status failed: {error}") from error

    async def _expand(self, volume: Volume, published: Published) -> None:
        """Call the driver; DriverError, SecretError, ApiError, UnreachableError."""
        from kvstack.agents.kubelet.csi.node_client import Call  # by now there is a driver

        client = self._drivers.client(volume.driver)
        abilities = await client.abilities()
        if not abilities.expands:
            raise DriverError(f"NodeExpand is not supported by the CSI driver {volume.driver}")
        secrets: Mapping[str, str] = {}
        if volume.expand_secret is not None:
            secrets = await self._secrets.read(volume.expand_secret)
        target = str(self._paths.target(published))
        staging = str(self._paths.staging(staged_of(published))) if abilities.stages else ""
        size = expansion.size_of(volume)
        await client.expand(volume, target, staging, size, Call(abilities, secrets=secrets))

    async def _failed(
        self,
        growth: Growth,
        volume: Volume,
        claim: Object,
        error: DriverError,
        *,
        is_written: bool,
    ) -> None:
        """Report that a driver refused an expansion; GrowthError: it is to be tried again."""
        text = f"Expander.NodeExpand failed to expand the volume : {error}"
        if error.is_final and not is_written:
            is_other = growth.has_failed and expansion.is_other_request(claim, volume)
            is_infeasible = error.code in expansion.INFEASIBLE_CODES or is_other
            growth.has_failed = True
            now_s = self._clock.now_s()
            patch = expansion.failed(text, now_s, is_infeasible=is_infeasible)
            try:
                await self._write(claim, patch)
            except (ApiError, UnreachableError) as problem:
                what = "a claim's failed expansion was not reported"
                self._logger.warning(what, volume=volume.name, error=str(problem))
        if error.code == expansion.IN_USE_CODE:
            growth.is_refused = True
            what = "a volume does not grow while it is in use"
            self._logger.warning(what, volume=volume.name, error=str(error))
            return
        raise GrowthError(text) from error

    async def _write(self, claim: Object, patch: Object) -> Object:
        meta = claim["metadata"]
        written: Object = await self._api.patch(
            PERSISTENT_VOLUME_CLAIMS,
            meta["namespace"],
            meta["name"],
            patch,
            STRATEGIC_MERGE_PATCH,
            subresource="status",
        )
        return written

    def _report(self, pod: Object, claim: Object, type_: str, reason: str, text: str) -> None:
        for about in (pod, claim):
            self._recorder.record(about, type_, reason, text)
