"""Servers of DNS that end without a word: the others delete their EndpointSlices.

No pod stands behind such a slice, so nothing else tells whether its server is alive. Each server
connects to the others every second, as a tcpSocket probe does; after FAILURES in a row it
deletes the slice. A server that is alive after all writes its slice again at once. Only slices
with the label of servers that are started for this are probed: those of `kvstack up` listen to
their nodes alone.
"""

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Final, NamedTuple

from kvstack.agents.client.api import Api
from kvstack.agents.client.built_in import ENDPOINT_SLICES
from kvstack.agents.client.informers import Informers
from kvstack.agents.client.transport import UnreachableError
from kvstack.agents.dns.publishing.kube_dns import (
    MANAGER,
    NAME,
    NAMESPACE,
    PROBED,
    PROBED_LABEL,
    slice_name,
)
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apimachinery.well_known import SERVICE_NAME_LABEL, SLICE_MANAGED_BY_LABEL
from kvstack.component.logger import Logger

EVERY_S: Final = 1.0
TIMEOUT_S: Final = 1.0
FAILURES: Final = 3
"""As of a probe of a pod, by default."""
PEERS_MAX: Final = 16
"""Further slices are not probed."""
_LOGGED_EACH: Final = 60
"""Of failures to delete a slice, so many are logged once."""
_FAMILIES: Final = ("IPv4", "IPv6")
"""Types of addresses; names are not looked up."""
_LABELS: Final = {
    SERVICE_NAME_LABEL: NAME,
    SLICE_MANAGED_BY_LABEL: MANAGER,
    PROBED_LABEL: PROBED,
}


class Peer(NamedTuple):
    """The slice of another server."""

    name: str
    uid: str
    version: str
    """The resourceVersion."""
    address: str
    port: int


def peers_of(own: str, slices: Iterable[Object]) -> Iterator[Peer]:
    """Give the slices to be probed; own: the name of this server's."""
    for each in slices:
        meta = each["metadata"]
        labels = meta.get("labels") or {}
        if meta["name"] == own or any(labels.get(key) != text for key, text in _LABELS.items()):
            continue
        ports = [
            port["port"]
            for port in each.get("ports") or ()
            if port.get("name") == "dns-tcp" and port.get("port")
        ]
        addresses = [host for end in each.get("endpoints") or () for host in end["addresses"]]
        if ports and addresses and each["addressType"] in _FAMILIES:
            version = meta["resourceVersion"]
            yield Peer(meta["name"], meta["uid"], version, addresses[0], ports[0])


class Peers:
    """Probes the other servers, from `start` to `stop`."""

    def __init__(self, api: Api, informers: Informers, name: str, logger: Logger) -> None:
        """name: of this server."""
        self._api = api
        self._slices = informers.of(ENDPOINT_SLICES)
        self._own = slice_name(name)
        self._logger = logger
        self._failures: dict[Peer, int] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Probe from now on."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="peers of DNS")

    async def stop(self) -> None:
        """Probe no longer."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        await self._slices.synced()
        while True:
            await self.probe()
            await asyncio.sleep(EVERY_S)

    async def probe(self) -> None:
        """Probe each once, and delete what failed too often."""
        peers = [*peers_of(self._own, self._slices.store.in_namespace(NAMESPACE))][:PEERS_MAX]
        answers = await asyncio.gather(*(_answers(each.address, each.port) for each in peers))
        self._failures = {
            peer: self._failures.get(peer, 0) + 1
            for peer, is_alive in zip(peers, answers, strict=True)
            if not is_alive
        }
        for peer, count in self._failures.items():
            if count >= FAILURES:
                await self._delete(peer, is_logged=(count - FAILURES) % _LOGGED_EACH == 0)

    async def _delete(self, peer: Peer, *, is_logged: bool) -> None:
        text, reason = "a server of DNS does not answer: its EndpointSlice is deleted", ""
        try:
            await self._api.delete(
                ENDPOINT_SLICES, NAMESPACE, peer.name, uid=peer.uid, resource_version=peer.version
            )
        except ApiError as error:
            if error.is_not_found or error.is_conflict:
                return  # it has changed meanwhile
            reason = str(error)
        except UnreachableError as error:
            reason = str(error)
        if reason:
            text = "failed to delete the EndpointSlice of a server of DNS that does not answer"
        if is_logged or not reason:
            self._logger.warning(text, slice=peer.name, address=peer.address, reason=reason)


async def _answers(host: str, port: int) -> bool:
    """Return whether a connection can be made."""
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(TIMEOUT_S):
            _, writer = await asyncio.open_connection(host, port)
        writer.transport.abort()
        return True
    return False
