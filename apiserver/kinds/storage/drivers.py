"""CSIDrivers: properties of CSI drivers."""

from typing import Any, Final

from kvstack.apimachinery.objects.field_errors import (
    FieldError,
    child,
    duplicate,
    index,
    invalid,
    not_supported,
    required,
)
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.names import IMMUTABLE
from kvstack.apimachinery.objects.text.go_text import JsonText
from kvstack.apimachinery.objects.times import age
from kvstack.apiserver.kinds.generation import raise_generation
from kvstack.apiserver.kinds.rules import Errors
from kvstack.apiserver.kinds.strategy import Context, Strategy

PERSISTENT: Final = "Persistent"

_SPEC: Final = "io.k8s.api.storage.v1.CSIDriverSpec"
_DEFAULTS: Final = {
    "attachRequired": True,
    "podInfoOnMount": False,
    "storageCapacity": False,
    "fsGroupPolicy": "ReadWriteOnceWithFSType",
    "requiresRepublish": False,
    "seLinuxMount": False,
    "preventPodSchedulingIfMissing": False,
}
_GROUP_POLICIES: Final = ("File", "None", "ReadWriteOnceWithFSType")
_MODES: Final = (PERSISTENT, "Ephemeral")
_TOKEN_SECONDS_MIN: Final = 600
_TOKEN_SECONDS_MAX: Final = 2**32
_PERIOD_SECONDS_MIN: Final = 10
_TOKENS_EXPOSED: Final = (
    "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to"
    " prevent possible logging of tokens in volume attributes"
)


def _default(obj: Object) -> None:
    spec = obj.setdefault("spec", {})
    for name, value in _DEFAULTS.items():
        spec.setdefault(name, value)
    if not spec.get("volumeLifecycleModes"):
        spec["volumeLifecycleModes"] = [PERSISTENT]


def _prepare_update(new: Object, old: Object, _context: Context) -> None:
    raise_generation(new, old, _SPEC)


def _validate(obj: Object, _context: Context) -> list[FieldError]:
    errors: list[FieldError] = []
    spec = obj["spec"]
    _check_given(errors, spec, ("attachRequired", "podInfoOnMount", "storageCapacity"))
    policy = spec.get("fsGroupPolicy")
    if policy is not None and policy not in _GROUP_POLICIES:
        errors.append(not_supported("spec.fsGroupPolicy", JsonText(policy), _GROUP_POLICIES))
    _check_token_requests(errors, spec.get("tokenRequests") or [])
    errors.extend(
        not_supported("spec.volumeLifecycleModes", JsonText(each), _MODES)
        for each in spec.get("volumeLifecycleModes") or ()
        if each not in _MODES
    )
    _check_given(errors, spec, ("seLinuxMount",))
    period = spec.get("nodeAllocatableUpdatePeriodSeconds")
    if period is not None and period < _PERIOD_SECONDS_MIN:
        detail = f"must be greater than or equal to {_PERIOD_SECONDS_MIN} seconds"
        errors.append(invalid("spec.nodeAllocatableUpdatePeriodSeconds", period, detail))
    in_secrets = spec.get("serviceAccountTokenInSecrets")
    if in_secrets is not None and not spec.get("tokenRequests"):
        detail = "serviceAccountTokenInSecrets is set but no tokenRequests are specified"
        errors.append(invalid("spec.serviceAccountTokenInSecrets", in_secrets, detail))
    _check_given(errors, spec, ("preventPodSchedulingIfMissing",))
    return errors


def _check_given(errors: Errors, spec: Object, names: tuple[str, ...]) -> None:
    for each in names:
        if spec.get(each) is None:
            shown = "attachedRequired" if each == "attachRequired" else each
            errors.append(required(child("spec", shown)))


def _check_token_requests(errors: Errors, requests: list[Object]) -> None:
    audiences: set[str] = set()
    for position, each in enumerate(requests):
        path = index("spec.tokenRequests", position)
        audience, seconds = each.get("audience", ""), each.get("expirationSeconds")
        if audience in audiences:
            errors.append(duplicate(child(path, "audience"), audience))
            continue
        audiences.add(audience)
        field = child(path, "expirationSeconds")
        if seconds is not None and seconds < _TOKEN_SECONDS_MIN:
            detail = "may not specify a duration less than 10 minutes"
            errors.append(invalid(field, seconds, detail))
        if seconds is not None and seconds > _TOKEN_SECONDS_MAX:
            detail = "may not specify a duration larger than 2^32 seconds"
            errors.append(invalid(field, seconds, detail))


def _validate_update(new: Object, old: Object, context: Context) -> list[FieldError]:
    errors = _validate(new, context)
    spec, before = new["spec"], old["spec"]
    if spec.get("attachRequired") != before.get("attachRequired"):
        errors.append(invalid("spec.attachedRequired", spec.get("attachRequired"), IMMUTABLE))
    modes = spec.get("volumeLifecycleModes")
    if modes != before.get("volumeLifecycleModes"):
        errors.append(invalid("spec.volumeLifecycleModes", modes, IMMUTABLE))
    return errors


def _warnings(obj: Object, _context: Context) -> list[str]:
    spec = obj["spec"]
    is_exposed = spec.get("tokenRequests") and spec.get("serviceAccountTokenInSecrets") is None
    return [_TOKENS_EXPOSED] if is_exposed else []


def _update_warnings(new: Object, old: Object, context: Context) -> list[str]:
    if new["spec"].get("tokenRequests") == old["spec"].get("tokenRequests"):
        return []
    return _warnings(new, context)


def _cells(obj: Object, now: float) -> list[Any]:
    metadata, spec = obj["metadata"], obj["spec"]
    requests = spec.get("tokenRequests")
    return [
        metadata["name"],
        spec.get("attachRequired", True),
        spec.get("podInfoOnMount", False),
        spec.get("storageCapacity", False),
        ",".join(each.get("audience", "") for each in requests) if requests else "<unset>",
        spec.get("requiresRepublish", False),
        ",".join(spec.get("volumeLifecycleModes") or ()) or "<none>",
        age(metadata.get("creationTimestamp"), now),
    ]


CSI_DRIVERS: Final = Strategy(
    default=_default,
    prepare_update=_prepare_update,
    validate=_validate,
    validate_update=_validate_update,
    warnings=_warnings,
    update_warnings=_update_warnings,
    allows_unconditional_update=False,
    cells=_cells,
)
