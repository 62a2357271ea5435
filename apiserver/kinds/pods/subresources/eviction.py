"""Eviction of pods, subject to disruption budgets.

    options = delete_options(eviction, "web", dry_run)
    if ignores_budgets(pod):
        …                                  delete at once
    else:
        decision = decide(pod, covering_budgets(pod, budgets), now)

A pod that has not started, has ended or is being deleted needs no budget's consent. Any other takes
one of the allowed disruptions of its budget, but an unready pod may be deleted without one if other
pods satisfy the budget. This module only decides; the caller writes the budget, marks the pod and
deletes it, and retries on conflicts.
"""

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from typing import Final, NamedTuple

from kvstack.apimachinery.objects import labels, status
from kvstack.apimachinery.objects.core.conditions import find
from kvstack.apimachinery.objects.core.pod_status import is_ended, is_ready
from kvstack.apimachinery.objects.field_errors import invalid
from kvstack.apimachinery.objects.groups import GroupKind, GroupResource
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apiserver.kinds.budget_status import (
    DISRUPTION_ALLOWED,
    set_disruption_allowed,
)
from kvstack.apiserver.kinds.pods.conditions import set_condition

DISRUPTED_PODS_MAX: Final = 2000
"""Limit of evictions that the disruption controller has not processed."""
ATTEMPTS_MAX: Final = 20
"""Limit of attempts to write the budget or the pod on conflicts."""
ATTEMPTS_PAUSE: Final = 0.5
"""Seconds between attempts."""

_BLOCKED: Final = "Cannot evict pod as it would violate the pod's disruption budget."
_BUDGETS: Final = GroupResource("policy", "poddisruptionbudget")
_RETRY_SECONDS: Final = 10
_SEVERAL: Final = (
    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not"
    " support."
)


class Decision(NamedTuple):
    """How to evict a pod."""

    budget: Object | None = None
    """The budget with one disruption less; its status is to be written first, but not in a dry
    run."""
    only_this_version: bool = False
    """Whether the pod may only be deleted at its current version: if it has changed,
    `still_processed`."""
    budget_name: str = ""


def delete_options(eviction: Object, pod_name: str, dry_run: Sequence[str]) -> Object:
    """Return the DeleteOptions of an eviction; dry_run: of the query. Raises ApiError."""
    if (eviction.get("metadata") or {}).get("name", "") != pod_name:
        raise status.bad_request("name in URL does not match name in Eviction object")
    options: Object = dict(eviction.get("deleteOptions") or {})
    if options.get("ignoreStoreReadErrorWithClusterBreakingPotential"):
        path = "deleteOptions.ignoreStoreReadErrorWithClusterBreakingPotential"
        message = "can not be set for pod eviction, try after removing the option"
        kind = GroupKind("policy", "Eviction")
        raise status.invalid(kind, pod_name, [invalid(path, True, message)])
    own = options.get("dryRun") or []
    if own and dry_run and list(own) != list(dry_run):
        both = f"[{' '.join(dry_run)}] and [{' '.join(own)}]"
        raise status.unknown(f"Non-matching dry-run options in request and content: {both}")
    if dry_run:
        options["dryRun"] = list(dry_run)
    return options


def ignores_budgets(pod: Object) -> bool:
    """Return whether the pod can be deleted regardless of budgets."""
    return is_ended(pod) or _is_pending(pod) or "deletionTimestamp" in pod["metadata"]


def needs_version(pod: Object) -> bool:
    """Return whether a pod that ignores budgets may only be deleted at its current version.

    It could start in the meantime and count for a budget.
    """
    return not is_ended(pod) and "deletionTimestamp" not in pod["metadata"]


def covering_budgets(pod: Object, budgets: Iterable[Object]) -> list[Object]:
    """Return the budgets of the namespace whose selectors match the pod."""
    pod_labels: Mapping[str, str] = pod["metadata"].get("labels") or {}
    return [each for each in budgets if _covers(each, pod_labels)]


def decide(pod: Object, budgets: Sequence[Object], now: str) -> Decision:
    """Return how to evict a pod that these budgets cover; raises ApiError if they do not allow it.

    now: RFC 3339 in seconds, UTC.
    """
    if not budgets:
        return Decision()
    if len(budgets) > 1:
        raise status.unknown(_SEVERAL)
    budget = budgets[0]
    name = budget["metadata"]["name"]
    if not is_ready(pod) and _allows_unready(budget):
        return Decision(only_this_version=True, budget_name=name)
    return Decision(budget=take_disruption(budget, pod["metadata"]["name"], now), budget_name=name)


def take_disruption(budget: Object, pod_name: str, now: str) -> Object:
    """Return the budget with one disruption less, used by the pod; raises ApiError."""
    name, budget_status = budget["metadata"]["name"], budget.get("status") or {}
    if budget_status.get("observedGeneration", 0) < budget["metadata"].get("generation", 0):
        raise still_processed(name)
    allowed = budget_status.get("disruptionsAllowed", 0)
    if allowed < 0:
        why = "pdb disruptions allowed is negative"
        raise _refused(name, why, why)
    if len(budget_status.get("disruptedPods") or ()) > DISRUPTED_PODS_MAX:
        raise _refused(
            name,
            "DisruptedPods map too big - too many evictions not confirmed by PDB controller",
            "too many pending evictions not confirmed by PDB controller",
        )
    if allowed == 0:
        raise _with_cause(status.too_many_requests(_BLOCKED), _why_blocked(name, budget_status))
    changed = deepcopy(budget)
    changed_status = changed["status"]
    changed_status["disruptionsAllowed"] = allowed - 1
    if allowed == 1:
        set_disruption_allowed(changed_status, now)
    disrupted = changed_status.get("disruptedPods") or {}
    changed_status["disruptedPods"] = {**disrupted, pod_name: now}
    return changed


def still_processed(budget_name: str) -> ApiError:
    """Return the 429 of a budget whose status is not up to date."""
    error = status.too_many_requests(_BLOCKED, _RETRY_SECONDS)
    cause = f"The disruption budget {budget_name} is still being processed by the server."
    return _with_cause(error, cause)


def contended(budget_name: str) -> ApiError:
    """Return the 504 of a budget that could not be written because of conflicts."""
    message = f'couldn\'t update PodDisruptionBudget "{budget_name}" due to conflicts'
    return status.timeout(message, _RETRY_SECONDS)


def mark_evicted(pod: Object, now: str) -> None:
    """Set the condition that says why the pod ends. now: RFC 3339 in seconds, UTC."""
    set_condition(
        pod.setdefault("status", {}),
        "DisruptionTarget",
        "True",
        now,
        "EvictionByEvictionAPI",
        "Eviction API: evicting",
    )


def _is_pending(pod: Object) -> bool:
    return (pod.get("status") or {}).get("phase") == "Pending"


def _covers(budget: Object, pod_labels: Mapping[str, str]) -> bool:
    try:
        selector = labels.from_object((budget.get("spec") or {}).get("selector"))
    except labels.SelectorError:
        return False
    return selector.matches(pod_labels)


def _allows_unready(budget: Object) -> bool:
    if (budget.get("spec") or {}).get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    budget_status = budget.get("status") or {}
    desired: int = budget_status.get("desiredHealthy", 0)
    current: int = budget_status.get("currentHealthy", 0)
    return current >= desired > 0


def _why_blocked(name: str, budget_status: Object) -> str:
    blocked = f"The disruption budget {name} does not allow evicting pods currently"
    reason, message = "", ""
    allowed = find(budget_status.get("conditions"), DISRUPTION_ALLOWED) or {}
    if allowed.get("status") == "False":
        reason, message = allowed.get("reason", ""), allowed.get("message", "")
    if message and reason == "SyncFailed":
        return f"{blocked} because it failed sync: {message}"
    desired = budget_status.get("desiredHealthy", 0)
    current = budget_status.get("currentHealthy", 0)
    if current <= desired:
        return (
            f"The disruption budget {name} needs {desired} healthy pods and has {current} currently"
        )
    return f"{blocked} ({reason}): {message}" if message else blocked


def _refused(name: str, why: str, cause: str) -> ApiError:
    text = f"The disruption budget {name} does not allow evicting pods currently: {cause}"
    return _with_cause(status.forbidden(_BUDGETS, name, why), text)


def _with_cause(error: ApiError, message: str) -> ApiError:
    cause = {"reason": "DisruptionBudget", "message": message}
    error.status.setdefault("details", {})["causes"] = [cause]
    return error
