"""The mirror pods of a node's static pods in the API.

    await mirrors.show(pod, node, record)      its mirror; made, or made anew, if need be
    mirrors.with_status(pod)                   a static pod with what the API knows of it
    await mirrors.remove_others(pods)          those of pods that are no more

A static pod runs whether it has a mirror or not. What a mirror looks like is in `static_pods`; its
status is written as that of any pod is.
"""

from collections.abc import Iterable

from kvstack.agents.client.api import Api
from kvstack.agents.client.built_in import PODS
from kvstack.agents.client.object_store import ObjectStore
from kvstack.agents.client.transport import UnreachableError
from kvstack.agents.kubelet.static.static_pods import is_mirror, is_mirror_of, mirror_of
from kvstack.agents.kubelet.sync.pod_sync import PodRecord
from kvstack.agents.kubelet.sync.status_writer import StatusWriter
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError
from kvstack.component.logger import Logger


class Mirrors:
    """The mirrors of one node."""

    def __init__(self, api: Api, pods: ObjectStore, writer: StatusWriter, logger: Logger) -> None:
        """pods: those that the API has on the node."""
        self._api = api
        self._pods = pods
        self._writer = writer
        self._logger = logger

    def with_status(self, static: Object) -> Object:
        """Return a static pod with what the API knows of it."""
        mirror = self._of_same_name(static)
        if mirror is None or not is_mirror_of(mirror, static):
            return static
        return {**static, "status": mirror.get("status") or static["status"]}

    async def show(self, pod: Object, node: Object, record: PodRecord | None) -> Object | None:
        """Return the mirror of a static pod; None: the API takes none now.

        record: of the pod; a status that an earlier mirror has is to be written again.
        """
        try:
            return await self._create(pod, node, record)
        except (ApiError, UnreachableError) as error:
            name = pod["metadata"]["name"]
            self._logger.warning("a static pod is not shown", pod=name, error=str(error))
            return None

    async def _create(self, pod: Object, node: Object, record: PodRecord | None) -> Object:
        meta = pod["metadata"]
        found = self._of_same_name(pod)
        if found is not None and is_mirror_of(found, pod):
            return found
        if found is not None:
            await self._writer.finish(found)
        if record is not None:
            record.written_status = None
        try:
            return await self._api.create(PODS, meta["namespace"], mirror_of(pod, node))
        except ApiError as error:
            if not error.is_conflict:
                raise
        return await self._api.get(PODS, meta["namespace"], meta["name"])

    async def remove_others(self, static: Iterable[Object]) -> None:
        """Remove mirrors of all but these static pods."""
        wanted = {(each["metadata"]["namespace"], each["metadata"]["name"]) for each in static}
        for each in list(self._pods):
            meta = each["metadata"]
            if is_mirror(each) and (meta["namespace"], meta["name"]) not in wanted:
                await self._writer.finish(each)

    def _of_same_name(self, static: Object) -> Object | None:
        """Return a pod of the API with the name of a static one."""
        meta = static["metadata"]
        return self._pods.get(f"{meta['namespace']}/{meta['name']}")
