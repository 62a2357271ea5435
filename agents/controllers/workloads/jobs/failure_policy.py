"""The consequence of a failed pod: the first rule of the pod failure policy that matches.

verdict(job, pod)   → Verdict("Ignore", is_counted=False, message="")
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from kvstack.apimachinery.objects.json_object import Object

FAIL_JOB: Final = "FailJob"
FAIL_INDEX: Final = "FailIndex"
_IGNORE: Final = "Ignore"


class Verdict(NamedTuple):
    """The consequence of a pod's failure."""

    action: str
    """Empty: no rule matches."""
    is_counted: bool
    message: str
    """Why the whole Job fails, if it does."""


_COUNTED: Final = Verdict("", True, "")


def verdict(job: Object, pod: Object) -> Verdict:
    """Return what the failure of a pod means."""
    policy = job["spec"].get("podFailurePolicy") or {}
    for number, rule in enumerate(policy.get("rules") or ()):
        cause = _cause(rule, pod)
        if cause is not None:
            action: str = rule["action"]
            message = ""
            if action == FAIL_JOB:
                message = f"{cause} matching {action} rule at index {number}"
            return Verdict(action, action != _IGNORE, message)
    return _COUNTED


def _cause(rule: Object, pod: Object) -> str | None:
    """Return what of a pod a rule matches, as text."""
    meta, status = pod["metadata"], pod.get("status") or {}
    name = f"{meta['namespace']}/{meta['name']}"
    types = rule.get("onExitCodes")
    if types is not None:
        for container in (
            *(status.get("containerStatuses") or ()),
            *(status.get("initContainerStatuses") or ()),
        ):
            code = _matching_code(types, container)
            if code:
                return f"Container {container['name']} for pod {name} failed with exit code {code}"
        return None
    found = _matching_condition(rule.get("onPodConditions") or (), status)
    return None if found is None else f"Pod {name} has condition {found}"


def _matching_code(types: Object, container: Object) -> int:
    """Return the exit code of a container if it matches, else 0."""
    ended = (container.get("state") or {}).get("terminated")
    if ended is None or types.get("containerName") not in (None, container["name"]):
        return 0
    code: int = ended.get("exitCode", 0)
    is_listed = code in (types.get("values") or ())
    return code if is_listed == (types["operator"] == "In") else 0


def _matching_condition(patterns: Iterable[Object], status: Object) -> str | None:
    pairs = {(each["type"], each.get("status", "True")) for each in patterns}
    for condition in status.get("conditions") or ():
        if (condition["type"], condition["status"]) in pairs:
            found: str = condition["type"]
            return found
    return None
