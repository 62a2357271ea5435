"""The grace period of a pod's deletion."""

from kvstack.apimachinery.objects.core.pod_status import is_ended
from kvstack.apimachinery.objects.json_object import Object


def grace_period(pod: Object, asked: int | None) -> int:
    """Return the grace period in seconds, 0: immediate. asked: by the request, if given."""
    spec = pod.get("spec") or {}
    if not spec.get("nodeName") or is_ended(pod):
        return 0
    seconds: int = spec.get("terminationGracePeriodSeconds", 0) if asked is None else asked
    return seconds if seconds >= 0 else 1
