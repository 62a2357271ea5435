"""DefaultTolerationSeconds: pods tolerate not-ready and unreachable nodes for five minutes.

Pods with their own tolerations of these taints keep them.
"""

from typing import Any, Final

from kvstack.apimachinery.objects.core.group_resources import PODS
from kvstack.apimachinery.objects.core.tolerations import NO_EXECUTE
from kvstack.apimachinery.well_known import NOT_READY_TAINT, UNREACHABLE_TAINT
from kvstack.apiserver.policy.admission.plugin import Listed, calls
from kvstack.apiserver.policy.admission.request import CREATE, UPDATE, AdmissionRequest

SECONDS: Final = 300


class DefaultTolerationSeconds(Listed):
    """Adds two tolerations to pods."""

    name = "DefaultTolerationSeconds"
    calls = calls((CREATE, UPDATE), PODS)

    def __init__(
        self, not_ready_seconds: int = SECONDS, unreachable_seconds: int = SECONDS
    ) -> None:
        self._seconds: Final = {
            NOT_READY_TAINT: not_ready_seconds,
            UNREACHABLE_TAINT: unreachable_seconds,
        }

    def mutate(self, request: AdmissionRequest) -> None:
        """Add the tolerations that the pod lacks."""
        tolerations = (request.new.get("spec") or {}).get("tolerations") or ()
        keys = {
            each.get("key", "")
            for each in tolerations
            if each.get("effect", "") in {"", NO_EXECUTE}
        }
        if "" in keys:
            return
        added: list[dict[str, Any]] = [
            {
                "key": key,
                "operator": "Exists",
                "effect": NO_EXECUTE,
                "tolerationSeconds": seconds,
            }
            for key, seconds in self._seconds.items()
            if key not in keys
        ]
        if added:
            request.own("spec")["tolerations"] = [*tolerations, *added]
