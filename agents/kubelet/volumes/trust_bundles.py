"""Projected ClusterTrustBundles: the certificates of one, or of all of a signer.

    {"name": "example.com:roots:v1", "path": "ca.pem"}
    {"signerName": "example.com/roots", "labelSelector": {}, "path": "ca.pem"}

Certificates of several bundles are written once each, in the order of their bytes, without other
contents of the PEM. All bundles are followed from the first pod on that uses one.
"""

import asyncio
import ssl
from collections.abc import Callable, Iterable
from typing import Final

from kvstack.agents.client.api import Api
from kvstack.agents.client.built_in import CLUSTER_TRUST_BUNDLES
from kvstack.agents.client.informer import Informer
from kvstack.agents.kubelet.pods.environment import ConfigurationError
from kvstack.apimachinery.objects import labels
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.text import pem
from kvstack.component.clock import Clock
from kvstack.component.logger import Logger

_CERTIFICATE: Final = "CERTIFICATE"
_SYNCED_S: Final = 1.0


class TrustBundles:
    """The bundles, as the pods of one node see them."""

    def __init__(
        self,
        api: Api,
        clock: Clock,
        random: Callable[[], float],
        logger: Logger,
        on_change: Callable[[str], None],
    ) -> None:
        """on_change: called with the uid of each pod that shows bundles, when one changed."""
        self._informer = Informer(api, CLUSTER_TRUST_BUNDLES, clock, random, logger)
        self._informer.on_change(self._changed)
        self._on_change = on_change
        self._users: set[str] = set()
        self._task: asyncio.Task[None] | None = None

    async def anchors(self, uid: str, source: Object) -> bytes:
        """Return the certificates that a source names, as PEM; ConfigurationError."""
        self._users.add(uid)
        if self._task is None:
            loop = asyncio.get_running_loop()
            self._task = loop.create_task(self._informer.run(), name="informer of trust bundles")
        try:
            async with asyncio.timeout(_SYNCED_S):
                await self._informer.synced()
        except TimeoutError as error:
            raise ConfigurationError("the cluster's trust bundles are not known yet") from error
        found = list(self._selected(source))
        if not found and not source.get("optional"):
            raise ConfigurationError(f"no ClusterTrustBundle {_pem_of(source)} was found")
        return anchors_of(each["spec"]["trustBundle"] for each in found)

    def forget(self, uid: str) -> None:
        """Stop following for a pod."""
        self._users.discard(uid)

    async def close(self) -> None:
        """Stop following."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _selected(self, source: Object) -> Iterable[Object]:
        if name := source.get("name"):
            found = self._informer.store.get(name)
            return () if found is None else (found,)
        selector = source.get("labelSelector")
        if selector is None:  # which selects nothing; an empty one selects all
            return ()
        wanted = labels.from_object(selector)
        return [
            each
            for each in self._informer.store
            if each["spec"].get("signerName") == source.get("signerName")
            and wanted.matches(each["metadata"].get("labels") or {})
        ]

    def _changed(self, _old: Object | None, _new: Object | None) -> None:
        for uid in self._users:
            self._on_change(uid)


def anchors_of(bundles: Iterable[str]) -> bytes:
    """Return the certificates of bundles, as PEM."""
    found = {
        block.content
        for bundle in bundles
        for block in pem.blocks(bundle.encode())
        if block.kind == _CERTIFICATE
    }
    return "".join(ssl.DER_cert_to_PEM_cert(each) for each in sorted(found)).encode()


def _pem_of(source: Object) -> str:
    if name := source.get("name"):
        return f'"{name}"'
    return f'of signer "{source.get("signerName", "")}" that the labelSelector selects'
