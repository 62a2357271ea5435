"""The ServiceCIDR `kubernetes`: the ranges of the flags, as an object that allocators use."""

from collections.abc import Sequence
from typing import Final

from kvstack.apimachinery.objects.core.conditions import is_true
from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apiserver.allocators.cluster_ips import AddressRange
from kvstack.apiserver.registry.timing import now_text
from kvstack.apiserver.server.loopback import Loopback
from kvstack.component.clock import Clock
from kvstack.component.logger import Logger

PERIOD_S: Final = 10.0
RESOURCE: Final = GroupResource("networking.k8s.io", "servicecidrs")
NAME: Final = "kubernetes"
MANAGER: Final = "kubernetes-service-cidr-controller"

_READY: Final = "Ready"
_IS_READY: Final = "Kubernetes default Service CIDR is ready"


class DefaultServiceCidr:
    """Maintains the ServiceCIDR of the flags."""

    def __init__(
        self, loopback: Loopback, ranges: Sequence[AddressRange], clock: Clock, logger: Logger
    ) -> None:
        self._loopback: Final = loopback
        self._cidrs: Final = [each.cidr for each in ranges]
        self._clock: Final = clock
        self._logger: Final = logger
        self._reported: list[str] = []

    async def keep(self) -> None:
        """Create the object, or log that it differs from the flags; raises ApiError."""
        service_cidr = self._loopback.get(RESOURCE, "", NAME)
        if service_cidr is None:
            service_cidr = await self._loopback.create(
                RESOURCE, {"metadata": {"name": NAME}, "spec": {"cidrs": self._cidrs}}
            )
        cidrs = service_cidr["spec"]["cidrs"]
        if cidrs != self._cidrs:
            if len(cidrs) == 1 and self._cidrs[:1] == cidrs:
                service_cidr = await self._loopback.update(
                    RESOURCE, {**service_cidr, "spec": {"cidrs": self._cidrs}}
                )
            elif cidrs != self._reported:
                self._reported = cidrs
                self._logger.warning(
                    "the cluster's Service ranges differ from the flags",
                    flags=self._cidrs,
                    cluster=cidrs,
                )
                return
        if not service_cidr["metadata"].get("deletionTimestamp") and not _is_ready(service_cidr):
            await self._set_ready()

    async def _set_ready(self) -> None:
        condition = {
            "type": _READY,
            "status": "True",
            "message": _IS_READY,
            "lastTransitionTime": now_text(self._clock),
        }
        status = {"conditions": [condition]}
        await self._loopback.apply(
            RESOURCE, {"metadata": {"name": NAME}, "status": status}, MANAGER, "status"
        )


def _is_ready(obj: Object) -> bool:
    return is_true((obj.get("status") or {}).get("conditions"), _READY)
