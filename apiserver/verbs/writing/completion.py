"""Preparation, validation and warnings of every object before it is stored.

    complete_new       system fields → name → the kind's preparation → validation → warnings
    complete_changed   system fields kept → the kind's preparation → validation → warnings
    to_stored_form     the form after storing, once all checks have seen the object

Objects are in the hub version with defaults, and are changed in place. All errors of one pass are
reported together, with upstream's paths and texts.
"""

from typing import Final

from kvstack.apimachinery.objects import metadata, status
from kvstack.apimachinery.objects.field_errors import FieldError, invalid
from kvstack.apimachinery.objects.groups import GroupKind
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.names import name_is_dns_subdomain, name_is_path_segment
from kvstack.apimachinery.objects.unchanged import keeps
from kvstack.apimachinery.schema.resource import Kind
from kvstack.apimachinery.schema.stored_form import as_stored, without_empty
from kvstack.apiserver.kinds.strategy import Context
from kvstack.apiserver.verbs.call import Call
from kvstack.apiserver.verbs.endpoint import Endpoint

_FINALIZERS: Final = "metadata.finalizers"


def complete_new(call: Call, obj: Object, context: Context) -> None:
    """Complete and check a new object; raises ApiError."""
    endpoint = call.endpoint
    strategy = endpoint.main
    meta = obj["metadata"]
    if strategy.has_generation:
        meta["generation"] = 1
    strategy.prepare_create(obj, context)
    if call.given_kind is not None:
        _refuse_kind(call.given_kind, endpoint, meta, [])
    errors = _new_errors(endpoint, obj, context)
    if not strategy.peculiarities.reports_repeated:
        errors = distinct(errors)
    _refuse(endpoint, obj["metadata"], errors)
    call.warnings += context.warnings
    call.warnings += strategy.warnings(obj, context)


@keeps(2)
def complete_changed(call: Call, obj: Object, old: Object, context: Context) -> None:
    """Complete and check an object that is to replace another one; raises ApiError."""
    endpoint = call.endpoint
    strategy = endpoint.strategy
    metadata.keep_system_fields(obj["metadata"], old["metadata"])
    if not context.is_dry_run:
        obj["metadata"].pop("selfLink", None)  # it is not stored
    strategy.prepare_update(obj, old, context)
    meta = obj["metadata"]
    errors = metadata.validate(meta, name_is_path_segment, is_namespaced=endpoint.row.is_namespaced)
    errors += metadata.validate_update(meta, old["metadata"])
    if call.given_kind is not None:
        _refuse_kind(call.given_kind, endpoint, meta, errors)
    twice = list(errors) if strategy.peculiarities.reports_metadata_twice else []
    finalizers = meta.get("finalizers")
    if finalizers and endpoint.rechecks_finalizers:
        errors += metadata.validate_finalizer_names(_FINALIZERS, finalizers)
    errors += strategy.validate_update(obj, old, context)
    if endpoint.row.is_custom:
        errors = distinct(errors) + metadata.new_finalizers(meta, old["metadata"])
    else:
        errors = twice + distinct(errors)
    _refuse(endpoint, meta, errors)
    call.warnings += context.warnings
    call.warnings += strategy.update_warnings(obj, old, context)


def _refuse_kind(
    claimed_kind: Kind, endpoint: Endpoint, meta: Object, errors: list[FieldError]
) -> None:
    """Refuse a custom resource that names another kind; raises ApiError.

    errors: the other errors. For writes of the status the kind does not count.
    """
    if not claimed_kind.version:
        text = "Object 'apiVersion' is missing in 'object has no apiVersion field'"
        raise status.internal_error(text)
    if endpoint.subresource:
        return
    kind = endpoint.kind
    if claimed_kind.kind != kind.kind:
        errors = [*errors, invalid("kind", claimed_kind.kind, f"must be {kind.kind}")]
    if claimed_kind.api_version != kind.api_version:
        errors = [
            *errors,
            invalid("apiVersion", claimed_kind.api_version, f"must be {kind.api_version}"),
        ]
    raise status.invalid(
        GroupKind(claimed_kind.group, claimed_kind.kind), meta.get("name", ""), errors
    )


def _refuse(endpoint: Endpoint, meta: Object, errors: list[FieldError]) -> None:
    if errors:
        raise status.invalid(endpoint.group_kind, meta.get("name", ""), errors)


def distinct(errors: list[FieldError]) -> list[FieldError]:
    """Return errors without duplicates: hand-written and declarative rules may report the same."""
    return list({str(each): each for each in errors}.values()) if errors else errors


def _new_errors(endpoint: Endpoint, obj: Object, context: Context) -> list[FieldError]:
    strategy, meta = endpoint.main, obj["metadata"]
    is_namespaced = endpoint.row.is_namespaced
    if strategy.peculiarities.checks_metadata_last:
        return strategy.validate(obj, context) or metadata.validate(
            meta, name_is_path_segment, is_namespaced=is_namespaced
        )
    check_name = strategy.check_name or name_is_dns_subdomain
    errors = metadata.validate(meta, check_name, is_namespaced=is_namespaced)
    finalizers = meta.get("finalizers")
    if finalizers and not strategy.allows_any_finalizer:
        errors += metadata.validate_finalizer_names(_FINALIZERS, finalizers)
    errors += strategy.validate(obj, context)
    return errors


def to_stored_form(call: Call, obj: Object) -> None:
    """Change a complete object in place to what reading it back from the store would give."""
    endpoint = call.endpoint
    collection = endpoint.collection
    if call.has_empty and collection is not None:
        written = without_empty(obj, collection.codec.type)
        if written is not obj:
            obj.clear()
            obj |= written
    if endpoint.blank_status is not None:
        status_ = obj.get("status")
        blank: Object = endpoint.blank_status()
        obj["status"] = {**blank, **status_} if status_ else blank
    if collection is not None and not collection.codec.is_json:
        # The answer is as if read from the store, where defaults are applied again.
        endpoint.main.default(obj)
        as_stored(obj, collection.codec.type)
