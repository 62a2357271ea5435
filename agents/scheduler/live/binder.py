"""Binds pods to their nodes, through the API, after what they need there is bound."""

import asyncio
import copy
from typing import Any, Final, TypeAlias

from kvstack.agents.client.api import Api
from kvstack.agents.client.built_in import (
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
)
from kvstack.agents.client.object_store import key_of
from kvstack.agents.client.timing import Clock
from kvstack.agents.client.transport import UnreachableError
from kvstack.agents.scheduler.plugins.volume_binding import Plan
from kvstack.agents.scheduler.snapshot import storage
from kvstack.agents.scheduler.snapshot.pod_info import PodInfo
from kvstack.agents.scheduler.snapshot.storage import Storage
from kvstack.apiserver.objects.status import ApiError

Object: TypeAlias = dict[str, Any]

_TRIES: Final = 4
_BACK_OFF_S: Final = 0.01
_FACTOR: Final = 5
_AGAIN: Final = frozenset((500, 503))
_POLL_S: Final = 1.0


class BindingError(Exception):
    """A pod could not be bound; the message is what its events tell."""


class Binder:
    """Carries out decisions."""

    def __init__(self, api: Api, known: Storage, clock: Clock, timeout_s: float) -> None:
        """known: the volumes and claims the scheduler sees. timeout_s: for volumes to be bound."""
        self._api = api
        self._known = known
        self._clock = clock
        self._timeout_s = timeout_s

    def assume(self, plan: Plan, node_name: str) -> list[tuple[Object, Object]]:
        """Take what a plan binds as bound; return volumes and claims, before and after."""
        changed: list[tuple[Object, Object]] = []
        for volume, claim in plan.bindings:
            new = _volume_for(volume, claim)
            self._known.volumes[key_of(new)] = new
            changed.append((volume, new))
        for provision in plan.provisions:
            new = copy.deepcopy(provision.claim)
            new["metadata"].setdefault("annotations", {})[storage.SELECTED_NODE] = node_name
            self._known.claims[key_of(new)] = new
            changed.append((provision.claim, new))
        return changed

    def forget(self, changed: list[tuple[Object, Object]]) -> None:
        """Take back what was assumed, unless the API has shown something newer."""
        for old, new in changed:
            kept = self._known.claims if "namespace" in new["metadata"] else self._known.volumes
            if kept.get(key_of(new)) is new:
                kept[key_of(new)] = old

    async def bind_volumes(self, pod: PodInfo, changed: list[tuple[Object, Object]]) -> None:
        """Bind a pod's volumes, and wait until that is done; raises BindingError."""
        if not changed:
            return
        try:
            await self._bind_volumes(pod, changed)
        except (ApiError, UnreachableError, TimeoutError) as error:
            told = "context deadline exceeded" if isinstance(error, TimeoutError) else error
            text = f'running PreBind plugin "VolumeBinding": binding volumes: {told}'
            raise BindingError(text) from error

    async def bind_pod(self, pod: PodInfo, node_name: str) -> None:
        """Bind a pod; raises BindingError."""
        try:
            await self._bind_pod(pod, node_name)
        except (ApiError, UnreachableError) as error:
            raise BindingError(f'running Bind plugin "DefaultBinder": {error}') from error

    async def _bind_pod(self, pod: PodInfo, node_name: str) -> None:
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"namespace": pod.namespace, "name": pod.name, "uid": pod.uid},
            "target": {"kind": "Node", "name": node_name},
        }
        wait_s = _BACK_OFF_S
        for attempt in range(_TRIES):
            try:
                await self._api.create(
                    PODS, pod.namespace, binding, name=pod.name, subresource="binding"
                )
            except ApiError as error:
                if error.code not in _AGAIN or attempt == _TRIES - 1:
                    raise
            else:
                return
            await asyncio.sleep(wait_s)
            wait_s *= _FACTOR

    async def _bind_volumes(self, pod: PodInfo, changed: list[tuple[Object, Object]]) -> None:
        for _, new in changed:
            is_claim = "namespace" in new["metadata"]
            resource = PERSISTENT_VOLUME_CLAIMS if is_claim else PERSISTENT_VOLUMES
            await self._api.update(resource, new)
        async with asyncio.timeout(self._timeout_s):
            while not self._are_bound(pod):  # noqa: ASYNC110  # as often as upstream looks
                await asyncio.sleep(_POLL_S)

    def _are_bound(self, pod: PodInfo) -> bool:
        for name, _ in storage.claim_names(pod.obj):
            claim = self._known.claims.get(f"{pod.namespace}/{name}")
            annotations = (claim or {}).get("metadata", {}).get("annotations") or {}
            if claim is None or not claim["spec"].get("volumeName"):
                return False
            if storage.BIND_COMPLETED not in annotations:
                return False
        return True


def _volume_for(volume: Object, claim: Object) -> Object:
    """Return a volume that is a claim's."""
    new = copy.deepcopy(volume)
    meta = claim["metadata"]
    if not new["spec"].get("claimRef"):
        new["metadata"].setdefault("annotations", {})[storage.BOUND_BY_CONTROLLER] = "yes"
    new["spec"]["claimRef"] = {
        "kind": "PersistentVolumeClaim",
        "apiVersion": "v1",
        "namespace": meta["namespace"],
        "name": meta["name"],
        "uid": meta.get("uid", ""),
        "resourceVersion": meta.get("resourceVersion", ""),
    }
    return new
