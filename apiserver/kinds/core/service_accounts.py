"""ServiceAccounts: references to Secrets."""

from typing import Any, Final

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.times import age
from kvstack.apimachinery.well_known import MOUNTABLE_SECRETS_ANNOTATION
from kvstack.apiserver.kinds.strategy import Context, Strategy


def _prepare_create(obj: Object, _context: Context) -> None:
    secrets = obj.get("secrets")
    if secrets:
        obj["secrets"] = [{"name": each["name"]} if each.get("name") else {} for each in secrets]


def _prepare_update(new: Object, _old: Object, context: Context) -> None:
    _prepare_create(new, context)


def _warnings(obj: Object, _context: Context) -> list[str]:
    if MOUNTABLE_SECRETS_ANNOTATION not in (obj["metadata"].get("annotations") or {}):
        return []
    return [
        f"metadata.annotations[{MOUNTABLE_SECRETS_ANNOTATION}]: deprecated in v1.32+;"
        " prefer separate namespaces to isolate access to mounted secrets"
    ]


def _update_warnings(new: Object, old: Object, context: Context) -> list[str]:
    return [] if _warnings(old, context) else _warnings(new, context)


def _cells(obj: Object, now: float) -> list[Any]:
    metadata = obj["metadata"]
    return [metadata["name"], age(metadata.get("creationTimestamp"), now)]


SERVICE_ACCOUNTS: Final = Strategy(
    prepare_create=_prepare_create,
    prepare_update=_prepare_update,
    warnings=_warnings,
    update_warnings=_update_warnings,
    cells=_cells,
)
