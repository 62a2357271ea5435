"""Binds pods to their nodes, through the API."""

import asyncio
from typing import Final

from kvstack.agents.client.api import Api
from kvstack.agents.client.built_in import PODS
from kvstack.agents.client.transport import UnreachableError
from kvstack.agents.scheduler.snapshot.pod_info import PodInfo
from kvstack.apimachinery.objects.status import ApiError

_TRIES: Final = 4
_BACK_OFF_S: Final = 0.01
_FACTOR: Final = 5
_AGAIN: Final = frozenset((500, 503))


class BindingError(Exception):
    """A pod could not be bound; the message is for its events."""


class Binder:
    """Carries out decisions."""

    def __init__(self, api: Api) -> None:
        self._api = api

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
