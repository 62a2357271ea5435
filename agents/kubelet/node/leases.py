"""Keeps the leases of many nodes: each is renewed every few seconds, evenly spread in time.

Renewals of one moment go out side by side. What fails is tried again in the next round of its
node, which comes long before the lease ends.
"""

import asyncio
import heapq
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final

from kvstack.agents.client.api import Api
from kvstack.agents.client.built_in import LEASES, NODES
from kvstack.agents.client.transport import UnreachableError
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apimachinery.objects.times import micro_time_text
from kvstack.component.clock import Clock
from kvstack.component.logger import Logger

NAMESPACE: Final = "kube-node-lease"
DURATION_S: Final = 40

_AT_ONCE: Final = 32
_TICK_S: Final = 0.25
_RETRY_S: Final = 1.0


class Leases:
    """The leases of the nodes that are kept; all of it belongs to one loop."""

    def __init__(
        self,
        api: Api,
        clock: Clock,
        random: Callable[[], float],
        logger: Logger,
        every_s: float,
        lasts_s: int = DURATION_S,
    ) -> None:
        self._lasts_s = lasts_s
        self._api = api
        self._clock = clock
        self._random = random
        self._logger = logger
        self._every_s = every_s
        self._nodes: dict[str, Object] = {}
        self._leases: dict[str, Object] = {}  # as last written
        self._due: list[tuple[float, str, str]] = []  # monotonic seconds, name, uid of the node
        self._added = asyncio.Event()

    def keep(self, node: Object) -> None:
        """Keep the lease of a node from now on."""
        meta = node["metadata"]
        self._nodes[meta["name"]] = node
        heapq.heappush(self._due, (self._clock.monotonic_s(), meta["name"], meta["uid"]))
        self._added.set()

    def drop(self, name: str) -> None:
        """Stop renewing the lease of a node."""
        self._nodes.pop(name, None)
        self._leases.pop(name, None)

    async def run(self) -> None:
        """Renew until cancelled."""
        while True:
            self._added.clear()
            due = self._take_due()
            for first in range(0, len(due), _AT_ONCE):
                batch = due[first : first + _AT_ONCE]
                await asyncio.gather(*(self._renew(name) for name in batch))
            if due:
                continue
            if not self._due:
                await self._added.wait()
                continue
            wait_s = max(self._due[0][0] - self._clock.monotonic_s(), _TICK_S)
            try:
                async with asyncio.timeout(wait_s):
                    await self._added.wait()
            except TimeoutError:
                continue

    def _take_due(self) -> list[str]:
        now = self._clock.monotonic_s()
        due = []
        while self._due and self._due[0][0] <= now:
            _, name, uid = heapq.heappop(self._due)
            node = self._nodes.get(name)
            if node is not None and node["metadata"]["uid"] == uid:
                due.append(name)
        return due

    async def _renew(self, name: str) -> None:
        node = self._nodes.get(name)
        if node is None:
            return
        is_first = name not in self._leases
        try:
            await self._write(name, node)
        except (ApiError, UnreachableError) as error:
            self._logger.warning("failed to renew a lease", node=name, error=str(error))
            wait_s = min(_RETRY_S, self._every_s)
        else:
            # The first renewals are spread, so that all later ones are.
            wait_s = self._every_s * (self._random() if is_first else 1.0)
        uid = node["metadata"]["uid"]
        heapq.heappush(self._due, (self._clock.monotonic_s() + wait_s, name, uid))

    async def _write(self, name: str, node: Object) -> None:
        """Renew the lease written last; after a conflict, create or renew the existing one."""
        api, namespace = self._api, NAMESPACE
        lease = self._leases.pop(name, None)
        written = None
        if lease is not None:
            again = renewed(lease, node, self._clock.now_s(), self._lasts_s)
            written = await _unless(
                api.update(LEASES, again), HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT
            )
        if written is None:
            fresh = new_lease(node, self._clock.now_s(), self._lasts_s)
            written = await _unless(api.create(LEASES, namespace, fresh), HTTPStatus.CONFLICT)
        if written is None:
            found = await api.get(LEASES, namespace, name)
            written = await api.update(
                LEASES, renewed(found, node, self._clock.now_s(), self._lasts_s)
            )
        if name in self._nodes:
            self._leases[name] = written


async def _unless(call: Awaitable[Object], *codes: HTTPStatus) -> Object | None:
    """Return what a call returns; None: it was refused with one of these codes."""
    try:
        return await call
    except ApiError as error:
        if error.code not in codes:
            raise
        return None


def new_lease(node: Object, now_s: float, lasts_s: int = DURATION_S) -> Object:
    """Return the first lease of a node."""
    meta = node["metadata"]
    owner = {
        "apiVersion": NODES.api_version,
        "kind": NODES.kind,
        "name": meta["name"],
        "uid": meta["uid"],
    }
    return {
        "apiVersion": LEASES.api_version,
        "kind": LEASES.kind,
        "metadata": {
            "name": meta["name"],
            "namespace": NAMESPACE,
            "ownerReferences": [owner],
        },
        "spec": {
            "holderIdentity": meta["name"],
            "leaseDurationSeconds": lasts_s,
            "renewTime": micro_time_text(now_s),
        },
    }


def renewed(lease: Object, node: Object, now_s: float, lasts_s: int = DURATION_S) -> Object:
    """Return a lease, renewed; it belongs to the node of today, which may have been made anew."""
    fresh = new_lease(node, now_s, lasts_s)
    meta = {**lease["metadata"], "ownerReferences": fresh["metadata"]["ownerReferences"]}
    return {**lease, "metadata": meta, "spec": {**(lease.get("spec") or {}), **fresh["spec"]}}
