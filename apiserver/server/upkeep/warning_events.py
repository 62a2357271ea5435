"""Warning events of the server's own controllers."""

from collections.abc import Callable, Iterable
from typing import Any, Final

from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apiserver.allocators.findings import Finding
from kvstack.apiserver.registry.timing import now_micro_text
from kvstack.apiserver.server.loopback import Loopback
from kvstack.component.clock import Clock

EVENTS: Final = GroupResource("events.k8s.io", "events")
SUFFIX_DIGITS: Final = 16
_DEFAULT_NAMESPACE: Final = "default"
_REPORTED_MAX: Final = 1024


class WarningEvents:
    """Writes one event per finding, until the controller finds something else about the object."""

    def __init__(
        self,
        loopback: Loopback,
        controller: str,
        host: str,
        clock: Clock,
        random_bits: Callable[[int], int],
    ) -> None:
        """Write as a controller on a host."""
        self._loopback: Final = loopback
        self._controller: Final = controller
        self._host: Final = host
        self._clock: Final = clock
        self._random_bits: Final = random_bits
        self._reported: dict[tuple[str, str], str] = {}

    async def report(self, findings: Iterable[Finding]) -> None:
        """Write an event for each new finding; raises ApiError."""
        for each in findings:
            key = each.about["metadata"]["uid"], each.reason
            if self._reported.get(key) == each.message:
                continue
            if len(self._reported) >= _REPORTED_MAX:
                self._reported.clear()
            self._reported[key] = each.message
            await self._loopback.create(EVENTS, self._event(each))

    def _event(self, finding: Finding) -> dict[str, Any]:
        about = finding.about
        metadata = about["metadata"]
        namespace = metadata.get("namespace") or _DEFAULT_NAMESPACE
        suffix = f"{self._random_bits(SUFFIX_DIGITS * 4):0{SUFFIX_DIGITS}x}"
        regarding = {
            "kind": about["kind"],
            "apiVersion": about["apiVersion"],
            "namespace": metadata.get("namespace", ""),
            "name": metadata["name"],
            "uid": metadata["uid"],
            "resourceVersion": metadata["resourceVersion"],
        }
        return {
            "metadata": {"name": f"{metadata['name']}.{suffix}", "namespace": namespace},
            "eventTime": now_micro_text(self._clock),
            "reportingController": self._controller,
            "reportingInstance": f"{self._controller}-{self._host}",
            "action": finding.action,
            "reason": finding.reason,
            "regarding": {name: value for name, value in regarding.items() if value},
            "note": finding.message,
            "type": "Warning",
        }
