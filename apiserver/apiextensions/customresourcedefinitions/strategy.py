"""CustomResourceDefinitions.

Existing faults of a stored definition may stay: each rule that is younger than definitions
themselves applies to an update only if the stored object satisfies it.
"""

from typing import Any, Final

from kvstack.apimachinery.objects.field_checks import immutable
from kvstack.apimachinery.objects.field_errors import FieldError, invalid, key, required
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.names import name_is_dns_subdomain
from kvstack.apimachinery.objects.text import go_urls
from kvstack.apiserver.apiextensions.customresourcedefinitions.conditions import (
    CLEANUP,
    TERMINATING,
    set_condition,
)
from kvstack.apiserver.apiextensions.customresourcedefinitions.layout import API
from kvstack.apiserver.apiextensions.customresourcedefinitions.names import name_errors
from kvstack.apiserver.apiextensions.customresourcedefinitions.ratchet import (
    Demands,
    demands_of,
    is_established,
)
from kvstack.apiserver.apiextensions.customresourcedefinitions.specs import spec_errors
from kvstack.apiserver.apiextensions.customresourcedefinitions.stored import V1BETA1
from kvstack.apiserver.apiextensions.customresourcedefinitions.warnings import definition_warnings
from kvstack.apiserver.kinds.generation import raise_generation
from kvstack.apiserver.kinds.strategy import (
    NO_TABLE,
    Context,
    Deletion,
    Peculiarities,
    Strategy,
    with_status,
)
from kvstack.apiserver.kinds.webhook_clients import default_client

APPROVAL: Final = "api-approved.kubernetes.io"

_SPEC: Final = f"{API}.CustomResourceDefinitionSpec"
_PROTECTED: Final = ("k8s.io", "kubernetes.io")
_ENHANCEMENT: Final = "see https://github.com/kubernetes/enhancements/pull/1111"
_NO_TIME: Final = "0001-01-01T00:00:00Z"
_STORED: Final = "status.storedVersions"
_PENDING: Final = (
    "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon"
)


def _default(obj: Object) -> None:
    spec = obj.setdefault("spec", {})
    names, status = spec.setdefault("names", {}), obj.setdefault("status", {})
    if not names.get("singular") and names.get("kind"):
        names["singular"] = names["kind"].lower()
    if not names.get("listKind") and names.get("kind"):
        names["listKind"] = f"{names['kind']}List"
    conversion = spec.setdefault("conversion", {"strategy": "None"})
    default_client((conversion.get("webhook") or {}).get("clientConfig"))
    if not status.get("storedVersions"):
        _add_stored_version(obj)


def _add_stored_version(obj: Object) -> None:
    """Add the storage version to status.storedVersions."""
    versions = obj["spec"].get("versions") or ()
    name = next((each.get("name", "") for each in versions if each.get("storage")), None)
    status = obj["status"]
    stored = status.get("storedVersions") or []
    if name is not None and name not in stored:
        status["storedVersions"] = [*stored, name]


def _prepare_create(obj: Object, _context: Context) -> None:
    obj["status"] = {}
    obj["metadata"]["generation"] = 1
    _add_stored_version(obj)


def _prepare_update(new: Object, old: Object, _context: Context) -> None:
    new["status"] = dict(old["status"])
    raise_generation(new, old, _SPEC)
    _add_stored_version(new)


def _prepare_status(new: Object, old: Object, _context: Context) -> None:
    new["spec"] = old["spec"]


def _validate(obj: Object, context: Context) -> list[FieldError]:
    errors = spec_errors(obj["spec"], Demands(expressions=context.expressions))
    return _name_errors(obj) + errors + _other_errors(obj, None)


def _name_errors(obj: Object) -> list[FieldError]:
    """Return the errors of the name besides its form."""
    spec, metadata = obj["spec"], obj["metadata"]
    wanted = f"{spec['names'].get('plural', '')}.{spec.get('group', '')}"
    detail = 'must be spec.names.plural+"."+spec.group'
    return [
        invalid(f"metadata.{name}", metadata[name], detail)
        for name in ("generateName", "name")
        if metadata.get(name) and metadata[name] != wanted
    ]


def _validate_update(new: Object, old: Object, context: Context) -> list[FieldError]:
    demands = demands_of(new, old, context.expressions)
    errors = spec_errors(new["spec"], demands)
    spec, before = new["spec"], old["spec"]
    names, names_before = spec["names"], before["names"]
    if demands.needs_same_names:
        errors += immutable("spec.scope", spec.get("scope", ""), before.get("scope", ""))
        errors += _same("kind", names, names_before)
    errors += immutable("spec.group", spec.get("group", ""), before.get("group", ""))
    errors += _same("plural", names, names_before)
    return errors + _other_errors(new, old)


def _same(name: str, names: Object, before: Object) -> list[FieldError]:
    return immutable(f"spec.names.{name}", names.get(name, ""), before.get(name, ""))


def _other_errors(obj: Object, old: Object | None) -> list[FieldError]:
    """Return the errors outside of the spec, and of immutable fields."""
    errors = _accepted_errors(obj) + _stored_errors(obj)
    return errors + _approval_errors(obj, old) + _preserve_errors(obj, old)


def _accepted_errors(obj: Object) -> list[FieldError]:
    return name_errors(obj["status"].get("acceptedNames") or {}, "status.acceptedNames")


def _validate_status(new: Object, _old: Object, _context: Context) -> list[FieldError]:
    return _accepted_errors(new)


def _stored_errors(obj: Object) -> list[FieldError]:
    stored = obj["status"].get("storedVersions")
    if not stored:
        return [invalid(_STORED, stored, "must have at least one stored version")]
    errors: list[FieldError] = []
    missing = {name: position for position, name in enumerate(stored)}
    for version in obj["spec"].get("versions") or ():
        name = version.get("name", "")
        # Of versions that share a name only the first counts.
        if missing.pop(name, None) is None and version.get("storage"):
            errors.append(invalid(_STORED, stored, f"must have the storage version {name}"))
    for name, position in missing.items():
        detail = (
            f"missing from spec.versions; {name} was previously a storage version, and must remain"
            f" in spec.versions until a storage migration ensures no data remains persisted in"
            f" {name} and removes {name} from status.storedVersions"
        )
        errors.append(invalid(f"{_STORED}[{position}]", name, detail))
    return errors


def _approval_errors(obj: Object, old: Object | None) -> list[FieldError]:
    """Return the errors of the approval of a kind in a group of Kubernetes itself."""
    group = obj["spec"].get("group", "")
    if not any(group == each or group.endswith(f".{each}") for each in _PROTECTED):
        return []
    state, reason = _approval(obj)
    if state in {"approved", "bypassed"} or (old is not None and _approval(old)[0] == state):
        return []
    path = key("metadata.annotations", APPROVAL)
    if state == "missing":
        return [required(path, reason)]
    return [invalid(path, obj["metadata"]["annotations"][APPROVAL], reason)]


def _approval(obj: Object) -> tuple[str, str]:
    """Return whether there is an approval, and its errors."""
    text = (obj["metadata"].get("annotations") or {}).get(APPROVAL, "")
    message = f'protected groups must have approval annotation "{APPROVAL}"'
    if not text:
        return "missing", f"{message}, {_ENHANCEMENT}"
    if text.startswith("unapproved"):
        return "bypassed", ""
    if _is_url(text):
        return "approved", ""
    reason = f'{message} with either a URL or a reason starting with "unapproved", {_ENHANCEMENT}'
    return "bad", reason


def _is_url(text: str) -> bool:
    try:
        url = go_urls.parse(text)
    except go_urls.UrlError:
        return False
    return bool(url.scheme) and bool(url.host)


def _preserve_errors(obj: Object, old: Object | None) -> list[FieldError]:
    if not obj["spec"].get("preserveUnknownFields"):
        return []
    if old is not None and old["spec"].get("preserveUnknownFields"):
        return []
    detail = (
        "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in"
        " spec.versions[*].schema instead"
    )
    return [invalid("spec.preserveUnknownFields", True, detail)]


def _mark_deleted(obj: Object, now: str) -> None:
    """Mark a definition: its objects are deleted first."""
    metadata = obj["metadata"]
    metadata["deletionTimestamp"] = now
    finalizers = metadata.get("finalizers") or []
    if CLEANUP not in finalizers:
        metadata["finalizers"] = [*finalizers, CLEANUP]
    set_condition(obj["status"], TERMINATING, "True", "InstanceDeletionPending", _PENDING, now)


def _warnings(obj: Object, _context: Context) -> list[str]:
    return definition_warnings(obj["spec"], None)


def _update_warnings(new: Object, old: Object, _context: Context) -> list[str]:
    return definition_warnings(new["spec"], old["spec"])


def _cells(obj: Object, _now: float) -> list[Any]:
    spec = obj["spec"]
    names = spec.get("names") or {}
    versions = sorted(
        each.get("name", "") + ("(storage)" if each.get("storage") else "")
        for each in spec.get("versions") or ()
        if each.get("served")
    )
    return [
        obj["metadata"]["name"],
        spec.get("scope", ""),
        ",".join(versions),
        obj["metadata"].get("creationTimestamp", _NO_TIME),
        spec.get("group", ""),
        names.get("kind", ""),
        ",".join(names.get("shortNames") or ()),
        is_established(obj),
    ]


CUSTOM_RESOURCE_DEFINITIONS: Final = with_status(
    Strategy(
        default=_default,
        prepare_create=_prepare_create,
        prepare_update=_prepare_update,
        validate=_validate,
        validate_update=_validate_update,
        warnings=_warnings,
        update_warnings=_update_warnings,
        check_name=name_is_dns_subdomain,
        allows_unconditional_update=False,
        has_generation=True,
        deletion=Deletion(mark=_mark_deleted),
        peculiarities=Peculiarities(reports_repeated=True),
        conversions={"v1beta1": V1BETA1},
        cells=_cells,
    ),
    prepare_update=_prepare_status,
    validate_update=_validate_status,
    table=NO_TABLE,
)
