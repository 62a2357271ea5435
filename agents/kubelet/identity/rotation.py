"""Renews a certificate of a node before it expires, as long as the node runs.

    rotation = Rotation(api, CLIENT_KIND, pki, node, addresses, on_new, clock, random, logger)
    await rotation.run()

A new one is requested when 70 to 90 % of the lifetime have passed, or at once if there is none.
What fails is tried again, less and less often.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from kvstack.agents.client.api import Api
from kvstack.agents.client.transport import UnreachableError
from kvstack.agents.kubelet.identity import certificates
from kvstack.agents.kubelet.identity.certificates import (
    CLIENT,
    CLIENT_USAGES,
    SERVER,
    SERVING_USAGES,
)
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apimachinery.well_known import KUBELET_CLIENT_SIGNER, KUBELET_SERVING_SIGNER
from kvstack.component.clock import Clock
from kvstack.component.errors import ConfigError
from kvstack.component.logger import Logger

_EARLIEST: Final = 0.7
_SPREAD: Final = 0.2
_RETRY_S: Final = 2.0
_RETRY_MAX_S: Final = 128.0
_LOOK_EVERY_S: Final = 3600.0
"""The interval of checks of the time, since a monotonic clock stops while the machine sleeps."""


class Kind(NamedTuple):
    """A kind of certificates: of clients or servers."""

    name: str
    """The name of its file."""
    signer: str
    usages: Sequence[str]


CLIENT_KIND: Final = Kind(CLIENT, KUBELET_CLIENT_SIGNER, CLIENT_USAGES)
SERVING_KIND: Final = Kind(SERVER, KUBELET_SERVING_SIGNER, SERVING_USAGES)


class Rotation:
    """Renews one certificate."""

    def __init__(
        self,
        api: Api,
        kind: Kind,
        pki: Path,
        node: str,
        addresses: Sequence[str],
        on_new: Callable[[Path], Awaitable[None]],
        clock: Clock,
        random: Callable[[], float],
        logger: Logger,
    ) -> None:
        """on_new: awaited with the file of each new certificate, which holds its key, too."""
        self._api = api
        self._kind = kind
        self._pki = pki
        self._node = node
        self._addresses = addresses
        self._on_new = on_new
        self._clock = clock
        self._random = random
        self._logger = logger

    @property
    def file(self) -> Path:
        """The path of the newest certificate."""
        return certificates.current(self._pki, self._kind.name)

    async def run(self) -> None:
        """Renew until cancelled."""
        wait_s = _RETRY_S
        due_s = await asyncio.to_thread(self.due_s)
        while True:
            rest_s = due_s - self._clock.now_s()
            if rest_s > 0:
                await asyncio.sleep(min(rest_s, _LOOK_EVERY_S))
                continue
            try:
                await self.renew()
            except (ApiError, ConfigError, UnreachableError, OSError) as error:
                what = self._kind.name
                self._logger.warning("failed to renew a certificate", what=what, error=str(error))
                await asyncio.sleep(wait_s)
                wait_s = min(wait_s * 2, _RETRY_MAX_S)
                continue
            wait_s = _RETRY_S
            due_s = await asyncio.to_thread(self.due_s)

    async def renew(self) -> None:
        """Get another certificate now; raises ApiError, ConfigError, UnreachableError, OSError."""
        key = await asyncio.to_thread(certificates.new_key)
        request = certificates.signing_request(key, self._node, self._addresses)
        kind = self._kind
        found = await certificates.signed(self._api, "", request, kind.signer, kind.usages)
        now_s = self._clock.now_s()
        await asyncio.to_thread(certificates.keep, self._pki, kind.name, found, key, now_s)
        await self._on_new(self.file)

    def due_s(self) -> float:
        """Return when another one is requested, in seconds since 1970."""
        if not self.file.exists():
            return 0.0
        begin_s, end_s = certificates.lifetime(self.file.read_bytes())
        return begin_s + (end_s - begin_s) * (_EARLIEST + _SPREAD * self._random())
