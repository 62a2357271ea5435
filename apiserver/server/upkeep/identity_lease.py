"""The identity Lease of an API server; expired Leases of other servers are deleted.

kube-system/apiserver-<hash of the host's name>   renewed every 10 s, good for an hour
"""

import base64
import hashlib
import struct
from typing import Final

from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apimachinery.objects.times import parse_micro_time
from kvstack.apimachinery.well_known import HOSTNAME_LABEL
from kvstack.apiserver.registry.timing import now_micro_text
from kvstack.apiserver.registry.view import View
from kvstack.apiserver.server.loopback import Loopback
from kvstack.component.clock import Clock

LEASES: Final = GroupResource("coordination.k8s.io", "leases")
NAMESPACE: Final = "kube-system"
PERIOD_S: Final = 10.0
ALONE_S: Final = 600.0
"""Interval where no other server reads the Lease."""
COLLECT_S: Final = 3600.0
LIFE_S: Final = 3600
COMPONENT: Final = "kube-apiserver"

_IDENTITY: Final = "apiserver.kubernetes.io/identity"
_ADDRESS: Final = "kubernetes.io/peer-advertise-address"


class IdentityLease:
    """Renews this server's Lease, and deletes expired ones of others."""

    def __init__(
        self, loopback: Loopback, view: View, clock: Clock, host: str, address: str, uid: str
    ) -> None:
        """Use the Lease of a host; address: host:port of this server, uid: of this run."""
        self._loopback: Final = loopback
        self._view: Final = view
        self._clock: Final = clock
        self._host: Final = host
        self._address: Final = address
        self.name: Final = lease_name(host)
        self._holder: Final = f"{self.name}_{uid}"

    async def renew(self) -> None:
        """Create or renew the Lease; raises ApiError."""
        lease = self._loopback.get(LEASES, NAMESPACE, self.name)
        now = now_micro_text(self._clock)
        spec = {
            "holderIdentity": self._holder,
            "leaseDurationSeconds": LIFE_S,
            "renewTime": now,
        }
        if lease is None:
            await self._loopback.create(LEASES, {"metadata": self._metadata({}), "spec": spec})
            return
        metadata = {**lease["metadata"], **self._metadata(lease["metadata"])}
        await self._loopback.update(
            LEASES, {**lease, "metadata": metadata, "spec": {**lease["spec"], **spec}}
        )

    async def collect(self) -> None:
        """Delete expired Leases of other servers; raises ApiError."""
        now = self._clock.unix_ms() / 1000
        for each in list(self._view.list(LEASES, NAMESPACE)):
            labels = each["metadata"].get("labels") or {}
            if labels.get(_IDENTITY) != COMPONENT or not _is_over(each, now):
                continue
            try:
                await self._loopback.delete(LEASES, each)
            except ApiError as error:
                # It was renewed, or another server deleted it first.
                if not (error.is_not_found or error.is_conflict):
                    raise

    def _metadata(self, known: Object) -> Object:
        labels = {**(known.get("labels") or {}), _IDENTITY: COMPONENT, HOSTNAME_LABEL: self._host}
        annotations = {**(known.get("annotations") or {}), _ADDRESS: self._address}
        return {
            "name": self.name,
            "namespace": NAMESPACE,
            "labels": labels,
            "annotations": annotations,
        }


def lease_name(host: str) -> str:
    """Return the name of the Lease of the API server of a host."""
    hashed = hashlib.sha256()
    for text in (host, COMPONENT):
        data = text.encode()
        hashed.update(struct.pack(">H", len(data)) + data)
    shown = base64.b32encode(hashed.digest()[:16]).decode().rstrip("=").lower()
    return f"apiserver-{shown}"


def _is_over(lease: Object, now: float) -> bool:
    spec = lease.get("spec") or {}
    renewed, life_s = spec.get("renewTime"), spec.get("leaseDurationSeconds")
    if not renewed or life_s is None:
        return True
    ends: float = parse_micro_time(renewed).seconds + life_s
    return ends < now
