"""Legacy token cleaner: removes unused tokens in Secrets that were created automatically.

    unused for a year ─► label legacy-token-invalid-since ─► another year ─► deleted

Left alone are tokens that a user made (the account does not list them), that a pod mounts, or whose
label of the last use cannot be read; and all, as long as uses are not tracked for a year.
"""

from collections.abc import Generator
from datetime import date, timedelta
from typing import Final

from typing_extensions import override

from kvstack.agents.client.built_in import CONFIG_MAPS, PODS, SECRETS, SERVICE_ACCOUNTS
from kvstack.agents.controllers.ownership import is_deleting
from kvstack.agents.controllers.sweeps import Sweep
from kvstack.agents.reconcile.plan import (
    Delete,
    Get,
    Identity,
    Outcome,
    Patch,
    Step,
    View,
    do,
)
from kvstack.apimachinery.objects.core.pod_references import secret_names
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.times import format_time, parse_time
from kvstack.apimachinery.schema.resource import MERGE_PATCH
from kvstack.apimachinery.well_known import (
    SERVICE_ACCOUNT_NAME_ANNOTATION,
    SERVICE_ACCOUNT_TOKEN_TYPE,
    SERVICE_ACCOUNT_UID_ANNOTATION,
    TOKEN_INVALID_SINCE_LABEL,
    TOKEN_LAST_USED_LABEL,
)

_TRACKING: Final = "kube-apiserver-legacy-service-account-token-tracking"


class LegacyTokenCleaner(Sweep):
    """Marks and deletes unused tokens, once a day."""

    period_s = 24 * 3600.0

    def __init__(self, unused_s: float) -> None:
        """unused_s: how long unused tokens are kept."""
        name = "legacy-service-account-token-cleaner"
        self.identity: Identity = Identity(
            "legacy-serviceaccount-token-cleaner-controller", name, name
        )
        super().__init__(SECRETS, SERVICE_ACCOUNTS, PODS)
        self._unused_s = unused_s

    @override
    def sweep(self, view: View, now_s: float) -> Generator[Step, list[Outcome], None]:
        """Mark and delete."""
        tracking = yield from do(Get(CONFIG_MAPS, "kube-system", _TRACKING))
        since = _day((tracking.get("data") or {}).get("since"))
        if since is None:
            raise ValueError(f"the ConfigMap {_TRACKING} does not say since when")
        tracked_s = parse_time(f"{since + timedelta(days=1)}T00:00:00Z").seconds
        if now_s < tracked_s + self._unused_s:
            return
        limit = _day_text(now_s - self._unused_s)
        mounted: dict[str, set[str]] = {}
        for secret in view.list(SECRETS):
            if self._is_unused(secret, limit, now_s) and _is_listed(secret, view):
                namespace = secret["metadata"]["namespace"]
                if namespace not in mounted:
                    pods = view.list(PODS, namespace)
                    mounted[namespace] = {name for pod in pods for name in secret_names(pod)}
                if secret["metadata"]["name"] not in mounted[namespace]:
                    yield from _mark_or_delete(secret, limit, now_s)

    def _is_unused(self, secret: Object, limit: str, now_s: float) -> bool:
        if secret.get("type") != SERVICE_ACCOUNT_TOKEN_TYPE or is_deleting(secret):
            return False
        created_s = parse_time(secret["metadata"]["creationTimestamp"]).seconds
        if created_s >= now_s - self._unused_s:
            return False
        used = (secret["metadata"].get("labels") or {}).get(TOKEN_LAST_USED_LABEL)
        return used is None or (_day(used) is not None and used < limit)


def _mark_or_delete(
    secret: Object, limit: str, now_s: float
) -> Generator[Step, list[Outcome], None]:
    meta = secret["metadata"]
    since = (meta.get("labels") or {}).get(TOKEN_INVALID_SINCE_LABEL)
    if _day(since) is None:
        labels = {TOKEN_INVALID_SINCE_LABEL: _day_text(now_s)}
        body = {"metadata": {"uid": meta["uid"], "labels": labels}}
        [outcome] = yield [Patch(SECRETS, meta["namespace"], meta["name"], body, MERGE_PATCH)]
    elif since is not None and since < limit:
        version = meta["resourceVersion"]
        [outcome] = yield [
            Delete(SECRETS, meta["namespace"], meta["name"], resource_version=version)
        ]
    else:
        return
    if not (outcome.is_not_found or outcome.is_conflict):
        outcome.result()


def _is_listed(secret: Object, view: View) -> bool:
    """Whether the account of a token lists it: it was created automatically."""
    meta = secret["metadata"]
    annotations = meta.get("annotations") or {}
    account = view.get(
        SERVICE_ACCOUNTS,
        f"{meta['namespace']}/{annotations.get(SERVICE_ACCOUNT_NAME_ANNOTATION, '')}",
    )
    if account is None or annotations.get(SERVICE_ACCOUNT_UID_ANNOTATION) not in (
        None,
        "",
        account["metadata"]["uid"],
    ):
        return False
    return any(each.get("name") == meta["name"] for each in account.get("secrets") or ())


def _day(text: str | None) -> date | None:
    """Return the day of a text; None: it is none."""
    try:
        return date.fromisoformat(text) if text and len(text) == len("2006-01-02") else None
    except ValueError:
        return None


def _day_text(at_s: float) -> str:
    return format_time(at_s)[: len("2006-01-02")]
