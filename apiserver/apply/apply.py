"""Server-side apply: a configuration is merged into the live object, and its applier owns it.

    live object + configuration → merged → without what the applier no longer applies → conflicts? →
    result

The applier owns exactly the fields of the configuration. A field that others own may be applied
with the same value: all then own it. Another value is a conflict, which `force` overrides. An
object without any owners is first assigned to `before-first-apply`.

The result has the configuration's values: not yet decoded, with nulls and other spellings of the
same value, and without defaults.
"""

from typing import Final

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import bad_request, unknown
from kvstack.apimachinery.objects.unchanged import keeps
from kvstack.apiserver.apply.comparison import is_same
from kvstack.apiserver.apply.conflict import Conflicts, conflict_error
from kvstack.apiserver.apply.endpoint import ConversionError, Endpoint, Versions
from kvstack.apiserver.apply.field_set import difference
from kvstack.apiserver.apply.last_applied import (
    MANAGER,
    has_annotation,
    owned_by_client,
    with_annotation,
)
from kvstack.apiserver.apply.managed_fields import (
    Managed,
    ManagedFieldsError,
    Managers,
    applier,
    decode,
    encode,
)
from kvstack.apiserver.apply.merging import merge
from kvstack.apiserver.apply.ownership import fields_of
from kvstack.apiserver.apply.pruning import prune
from kvstack.apiserver.apply.structure import ItemError
from kvstack.apiserver.apply.update import (
    STRIPPED,
    Changes,
    fit_managers,
    record_update,
    shift_managers,
)
from kvstack.apiserver.apply.validation import mismatches, summary

BEFORE_FIRST_APPLY: Final = "before-first-apply"


@keeps(1, 2)
def on_apply(
    endpoint: Endpoint,
    live: Object | None,
    config: Object,
    manager: str,
    now: str,
    *,
    force: bool = False,
) -> Object:
    """Return the result of an apply to the live object (None: there is none), with managedFields.

    config: the patch, plain JSON; now: RFC 3339 in seconds, UTC. Neither object is changed, and the
    result shares parts with both. Raises ApiError: 400 for a configuration of another object, 409
    for conflicts, 500 for one that does not fit its type.
    """
    live = {} if live is None else live
    try:
        managers = _decoded(live)
        _check_type(endpoint, config)
        if not managers and live:
            managers = record_update(endpoint, endpoint.zero, live, {}, BEFORE_FIRST_APPLY, now)
        _check_content(endpoint, config, "patch")
        return _applied(endpoint, live, config, managers, manager, now, force=force)
    except ConversionError as error:
        raise unknown(str(error)) from error
    except ItemError as error:
        _check_content(endpoint, live, "live", allows_duplicates=True)
        raise unknown(f"failed to compare objects: {error}") from error


def _applied(
    endpoint: Endpoint,
    live: Object,
    config: Object,
    managers: Managers,
    name: str,
    now: str,
    *,
    force: bool,
) -> Object:
    writer = applier(name, endpoint.subresource)
    before = Versions(endpoint, live)
    managers = fit_managers(before, managers)
    last = managers.get(writer)
    named = endpoint.owned(fields_of(config, endpoint.type))
    managers[writer] = Managed(named, endpoint.api_version)
    merged = merge(live, config, endpoint.type)
    if last is not None:
        merged = prune(endpoint, merged, managers, last, named)
    shift = shift_managers(Changes(endpoint, before, Versions(endpoint, merged)), managers, writer)
    conflicts = {} if force else _refused(endpoint, live, shift.conflicts, name)
    if conflicts:
        raise conflict_error(conflicts)
    if not is_same(live, merged):
        time = now
    else:
        time = last.time if last is not None else ""
        merged = live  # unchanged, with schemaless content in its original order
    managers = dict(shift.managers)
    managers[writer] = Managed(difference(named, STRIPPED), endpoint.api_version, time)
    if name == MANAGER and has_annotation(merged):
        merged = with_annotation(merged, config)
    return _with_managers(merged, {key: each for key, each in managers.items() if each.fields})


def _refused(endpoint: Endpoint, live: Object, conflicts: Conflicts, name: str) -> Conflicts:
    """Return the conflicts, for `kubectl` without those with its own client-side apply."""
    if not conflicts or name != MANAGER:
        return conflicts
    own = owned_by_client(endpoint, live)
    if own is None:
        return conflicts
    rest = {manager: difference(fields, own) for manager, fields in conflicts.items()}
    return {manager: fields for manager, fields in rest.items() if fields}


def _decoded(live: Object) -> Managers:
    meta = live.get("metadata") or {}
    entries = meta.get("managedFields") or []
    try:
        return decode(entries, entries)
    except ManagedFieldsError as error:
        raise unknown(f"failed to decode managed fields: {error}") from error


def _check_type(endpoint: Endpoint, config: Object) -> None:
    """Refuse a configuration of another kind or version, and one with managedFields."""
    api_version, kind = _text(config, "apiVersion"), _text(config, "kind")
    if (api_version, kind) != (endpoint.api_version, endpoint.kind):
        raise bad_request(f"invalid object type: {_kind_text(api_version, kind)}")
    meta = config.get("metadata")
    if isinstance(meta, dict) and isinstance(meta.get("managedFields"), list):
        raise bad_request("metadata.managedFields must be nil")


def _check_content(
    endpoint: Endpoint, obj: Object, role: str, *, allows_duplicates: bool = False
) -> None:
    """Refuse an object that does not fit its type; role: `patch` or `live`."""
    type_errors = mismatches(obj, endpoint.type, allows_duplicates=allows_duplicates)
    if type_errors:
        meta = obj.get("metadata")
        meta = meta if isinstance(meta, dict) else {}
        kind = _kind_text(endpoint.api_version, endpoint.kind)
        name = f"{_text(meta, 'namespace')}/{_text(meta, 'name')}"
        raise unknown(
            f"failed to create typed {role} object ({name}; {kind}): {summary(type_errors)}"
        )


def _text(obj: Object, name: str) -> str:
    value = obj.get(name)
    return value if isinstance(value, str) else ""


def _kind_text(api_version: str, kind: str) -> str:
    """Return the kind as Go prints it: `apps/v1, Kind=Deployment`, `/v1, Kind=Pod`."""
    if api_version.count("/") > 1:
        return "/, Kind="
    return f"{api_version if '/' in api_version else f'/{api_version}'}, Kind={kind}"


def _with_managers(obj: Object, managers: Managers) -> Object:
    meta = dict(obj.get("metadata") or {})
    meta.pop("managedFields", None)
    if managers:
        meta["managedFields"] = encode(managers)
    return {**obj, "metadata": meta}
