"""The rules of ObjectMeta that all kinds share.

    create   wipe → match_namespace → generated_name → fill          → validate
    update   match_namespace → keep_system_fields                    → validate, validate_update

Metadata are the plain dict of `metadata`, members with empty values absent. Functions named after
an act change the dict they are given; validators only look. The chars of a generated name, the UID
and the time of creation are the caller's.

Kinds add `validate_finalizer_names` to what they check, custom resources do not.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import orjson

from kvstack.apimachinery.objects import names
from kvstack.apimachinery.objects.field_checks import immutable, nonnegative
from kvstack.apimachinery.objects.field_errors import (
    FieldError,
    child,
    forbidden,
    index,
    invalid,
    not_supported,
    required,
    too_long,
)
from kvstack.apimachinery.objects.groups import GroupVersion, GroupVersionKind, parse_group_version
from kvstack.apimachinery.objects.names import CheckName, check_label_key, check_label_value, length
from kvstack.apimachinery.objects.status import ApiError, bad_request
from kvstack.apimachinery.objects.text.go_text import go_value
from kvstack.apimachinery.well_known import FOREGROUND_FINALIZER, ORPHAN_FINALIZER

Meta = dict[str, Any]

ANNOTATIONS_BYTES_MAX: Final = 256 * 1024
MANAGER_BYTES_MAX: Final = 128
SUBRESOURCE_BYTES_MAX: Final = 256

SUFFIX_CHARACTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
"""The characters of a generated suffix: no vowels, so no words."""
SUFFIX_LENGTH: Final = 5
GENERATED_PREFIX_MAX: Final = 58
GENERATE_ATTEMPTS: Final = 8
"""Attempts to find a free name for a create with generateName."""

_STANDARD_FINALIZERS: Final = frozenset((ORPHAN_FINALIZER, FOREGROUND_FINALIZER, "kubernetes"))

_SYSTEM_FIELDS: Final = (
    "creationTimestamp",
    "uid",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "selfLink",
)
_IMMUTABLE_FIELDS: Final = (
    ("name", ""),
    ("namespace", ""),
    ("uid", ""),
    ("creationTimestamp", None),
    ("deletionTimestamp", None),
    ("deletionGracePeriodSeconds", None),
)
"""With the value that an absent one is printed as."""
_COVERED_IMMUTABLE: Final = frozenset(_SYSTEM_FIELDS)
_OWNER_FIELDS: Final = ("apiVersion", "kind", "name", "uid")
_CONTROLLERS_TOLD_MAX: Final = 16
_OPERATIONS: Final = ("Apply", "Update")
_BANNED_OWNER: Final = GroupVersionKind("", "v1", "Event")

_DUPLICATE_OWNERS: Final = (
    ".metadata.ownerReferences contains duplicate entries{when}; API server dedups owner references"
    " in 1.20+, and may reject such requests as early as 1.24; please fix your requests;"
    " duplicate UID(s) observed: {uids}"
)


def wipe_system_fields(meta: Meta) -> None:
    """Drop what clients may not set on a new object."""
    for name in _SYSTEM_FIELDS:
        meta.pop(name, None)


def fill_system_fields(meta: Meta, uid: str, now: str) -> None:
    """Set what the server sets on a new object; now: RFC 3339 in seconds."""
    meta["uid"] = uid
    meta["creationTimestamp"] = now


def match_namespace(meta: Meta, request_namespace: str) -> None:
    """Set the namespace of the request; raises ApiError if the object names another.

    request_namespace: empty for kinds without namespaces, whose objects then lose theirs.
    """
    namespace = meta.get("namespace") or ""
    if namespace == request_namespace:
        return
    if not request_namespace:
        del meta["namespace"]
    elif not namespace:
        meta["namespace"] = request_namespace
    else:
        raise _namespace_mismatch()


def check_url_name(meta: Meta, url_name: str) -> None:
    """Check that the object to be written has the name its URL has; raises ApiError."""
    name = meta.get("name") or ""
    if not name:
        raise bad_request(
            f"the name of the object ({url_name} based on URL) was undeterminable:"
            " name must be provided"
        )
    if name != url_name:
        raise bad_request(
            f"the name of the object ({name}) does not match the name on the URL ({url_name})"
        )


def generated_name(prefix: str, suffix: str) -> str:
    """Return the name of an object made with generateName.

    suffix: SUFFIX_LENGTH random ones of SUFFIX_CHARACTERS.
    """
    if prefix.isascii():
        return prefix[:GENERATED_PREFIX_MAX] + suffix
    # Upstream cuts bytes, half a character too; the name is refused then in any case.
    return prefix.encode()[:GENERATED_PREFIX_MAX].decode(errors="replace") + suffix


def keep_system_fields(meta: Meta, old: Meta) -> None:
    """Take over from the stored object what an update cannot change."""
    _keep(meta, old, "generation")
    if not meta.get("uid"):
        _keep(meta, old, "uid")
    for name in ("creationTimestamp", "deletionTimestamp"):
        if old.get(name):
            meta[name] = old[name]
    if old.get("deletionGracePeriodSeconds") is not None:
        meta.setdefault("deletionGracePeriodSeconds", old["deletionGracePeriodSeconds"])


def drop_duplicate_owners(meta: Meta, *, is_after_admission: bool = False) -> list[str]:
    """Drop duplicate owner references; return the warning about them, if any."""
    references: Sequence[Mapping[str, Any]] = meta.get("ownerReferences") or ()
    if len(references) < 2:
        return []
    unique: dict[bytes, Mapping[str, Any]] = {}
    dropped: list[str] = []
    for reference in references:
        key = orjson.dumps(reference, option=orjson.OPT_SORT_KEYS)
        if key in unique:
            dropped.append(reference.get("uid") or "")
        else:
            unique[key] = reference
    if not dropped:
        return []
    meta["ownerReferences"] = list(unique.values())
    when = " after mutating admission happens" if is_after_admission else ""
    return [_DUPLICATE_OWNERS.format(when=when, uids=", ".join(dropped))]


def validate(
    meta: Meta, check_name: CheckName, *, is_namespaced: bool, path: str = "metadata"
) -> list[FieldError]:
    """Return what is wrong with the metadata of an object, whether new or not."""
    errors = _name_errors(meta, check_name, path) if meta.get("generateName") else []
    # Paths are made where something is wrong: this is asked of every object.
    if name := meta.get("name"):
        if wrong := check_name(name, False):
            errors += [invalid(child(path, "name"), name, each) for each in wrong]
    else:
        errors.append(required(child(path, "name"), "name or generateName is required"))
    errors += _namespace_errors(meta, path, is_namespaced=is_namespaced)
    generation = meta.get("generation") or 0
    if generation < 0:
        errors += _covered(nonnegative(child(path, "generation"), generation))
    errors += _map_errors(meta, path)
    if finalizers := meta.get("finalizers"):
        errors += validate_finalizers(child(path, "finalizers"), finalizers)
    if managed := meta.get("managedFields"):
        errors += validate_managed_fields(child(path, "managedFields"), managed)
    return errors


def validate_update(new: Meta, old: Meta, path: str = "metadata") -> list[FieldError]:
    """Return what is wrong with a change of metadata; `validate` is called besides."""
    errors: list[FieldError] = []
    errors += new_finalizers(new, old, path)
    if not new.get("resourceVersion"):
        detail = "must be specified for an update"
        errors.append(invalid(child(path, "resourceVersion"), "", detail))
    generation = new.get("generation") or 0
    if generation < 0:
        errors += _covered(nonnegative(child(path, "generation"), generation))
    if generation < (old.get("generation") or 0):
        errors.append(invalid(child(path, "generation"), generation, "must not be decremented"))
    for name, absent in _IMMUTABLE_FIELDS:
        if new.get(name) != old.get(name):
            found = immutable(child(path, name), new.get(name, absent), old.get(name, absent))
            errors += _covered(found) if name in _COVERED_IMMUTABLE else found
    errors += _map_errors(new, path)
    if managed := new.get("managedFields"):
        errors += validate_managed_fields(child(path, "managedFields"), managed)
    return errors


def validate_labels(path: str, labels: Mapping[str, str]) -> list[FieldError]:
    """Return what is wrong with keys and values of labels."""
    errors: list[FieldError] = []
    for name, value in labels.items():
        errors += [invalid(path, name, each) for each in check_label_key(name)]
        errors += [invalid(path, value, each) for each in check_label_value(value)]
    return errors


def validate_annotations(path: str, annotations: Mapping[str, str]) -> list[FieldError]:
    """Return what is wrong with the keys of annotations and their size in all."""
    errors: list[FieldError] = []
    size = 0
    for name, value in annotations.items():
        size += length(name) + length(value)
        errors += [invalid(path, name, each) for each in check_label_key(name.lower())]
    if size > ANNOTATIONS_BYTES_MAX:
        errors.append(too_long(path, ANNOTATIONS_BYTES_MAX))
    return errors


def validate_owner_references(
    path: str, references: Sequence[Mapping[str, Any]]
) -> list[FieldError]:
    """Return the errors of owner references; the existence of owners is not checked.

    Each controller beyond the first is told of with the whole list, so only some are.
    """
    errors: list[FieldError] = []
    controller, told = "", 0
    for position, reference in enumerate(references):
        errors += _owner_errors(index(path, position), reference)
        if reference.get("controller"):
            current = f"{reference.get('kind') or ''}/{reference.get('name') or ''}"
            if controller and told < _CONTROLLERS_TOLD_MAX:
                told += 1
                detail = (
                    "Only one reference can have Controller set to true. Found "
                    f'"true" in references for {controller} and {current}'
                )
                printed = [_printed_owner(each) for each in references]
                errors.append(invalid(path, printed, detail))
            controller = controller or current
    return errors


def validate_finalizers(path: str, finalizers: Sequence[str]) -> list[FieldError]:
    """Return what is wrong with the finalizers of any object."""
    errors = [
        invalid(path, finalizer, each)
        for finalizer in finalizers
        for each in check_label_key(finalizer)
    ]
    if ORPHAN_FINALIZER in finalizers and FOREGROUND_FINALIZER in finalizers:
        detail = f"finalizer {ORPHAN_FINALIZER} and {FOREGROUND_FINALIZER} cannot be both set"
        errors.append(invalid(path, list(finalizers), detail))
    return errors


def validate_finalizer_names(path: str, finalizers: Iterable[str]) -> list[FieldError]:
    """Return what is wrong with the finalizers of an object of a built-in kind, besides."""
    detail = "name is neither a standard finalizer name nor is it fully qualified"
    return [
        invalid(index(path, position), finalizer, detail)
        for position, finalizer in enumerate(finalizers)
        if "/" not in finalizer and finalizer not in _STANDARD_FINALIZERS
    ]


def validate_managed_fields(path: str, entries: Sequence[Mapping[str, Any]]) -> list[FieldError]:
    """Return what is wrong with the form of entries of managedFields."""
    errors: list[FieldError] = []
    for position, entry in enumerate(entries):
        if _is_good_entry(entry):
            continue
        here = index(path, position)
        operation = entry.get("operation")
        if not operation:
            errors += _covered([required(child(here, "operation"), "must not be empty")])
        elif operation not in _OPERATIONS:
            errors += _covered([not_supported(child(here, "operation"), operation, _OPERATIONS)])
        fields_type = entry.get("fieldsType")
        if fields_type and fields_type != "FieldsV1":
            detail = "must be `FieldsV1`"
            errors.append(invalid(child(here, "fieldsType"), fields_type, detail))
        errors += validate_field_manager(child(here, "manager"), entry.get("manager") or "")
        if length(entry.get("subresource") or "") > SUBRESOURCE_BYTES_MAX:
            errors.append(too_long(child(here, "subresource"), SUBRESOURCE_BYTES_MAX))
    return errors


def _is_good_entry(entry: Mapping[str, Any]) -> bool:
    """Return whether an entry surely has nothing wrong, as those that were made here."""
    manager: str = entry.get("manager") or ""
    return (
        entry.get("fieldsType") == "FieldsV1"
        and entry.get("operation") in _OPERATIONS
        and not entry.get("subresource")
        and manager.isascii()
        and manager.isprintable()
        and len(manager) <= MANAGER_BYTES_MAX
    )


def validate_field_manager(path: str, manager: str) -> list[FieldError]:
    """Return what is wrong with the name of a field manager; it may be empty."""
    errors: list[FieldError] = []
    if length(manager) > MANAGER_BYTES_MAX:
        errors.append(too_long(path, MANAGER_BYTES_MAX))
    if not manager.isprintable():
        errors += _unprintable(path, manager)
    return errors


def _name_errors(meta: Meta, check_name: CheckName, path: str) -> list[FieldError]:
    prefix: str = meta["generateName"]
    where = child(path, "generateName")
    return [invalid(where, prefix, each) for each in check_name(prefix, True)]


def _namespace_errors(meta: Meta, path: str, *, is_namespaced: bool) -> list[FieldError]:
    namespace = meta.get("namespace")
    if not is_namespaced:
        if not namespace:
            return []
        return [forbidden(child(path, "namespace"), "not allowed on this type")]
    if not namespace:
        return [required(child(path, "namespace"))]
    wrong = names.check_dns_label(namespace)
    return [invalid(child(path, "namespace"), namespace, each) for each in wrong]


def _map_errors(meta: Meta, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    if labels := meta.get("labels"):
        errors += validate_labels(child(path, "labels"), labels)
    if annotations := meta.get("annotations"):
        errors += validate_annotations(child(path, "annotations"), annotations)
    if owners := meta.get("ownerReferences"):
        errors += validate_owner_references(child(path, "ownerReferences"), owners)
    return errors


def _owner_errors(path: str, reference: Mapping[str, Any]) -> list[FieldError]:
    errors: list[FieldError] = []
    api_version: str = reference.get("apiVersion") or ""
    group_version = _group_version(api_version)
    if not api_version:
        errors += _covered([required(child(path, "apiVersion"), "must not be empty")])
    elif not group_version.version:
        detail = "must be <group>/<version> or <version>"
        errors.append(invalid(child(path, "apiVersion"), api_version, detail))
    for name in _OWNER_FIELDS[1:]:
        if not reference.get(name):
            errors += _covered([required(child(path, name), "must not be empty")])
    kind = GroupVersionKind(*group_version, reference.get("kind") or "")
    if kind == _BANNED_OWNER:
        detail = f"{kind} is disallowed from being an owner"
        errors.append(invalid(path, _printed_owner(reference), detail))
    return errors


def _group_version(api_version: str) -> GroupVersion:
    try:
        return parse_group_version(api_version)
    except ValueError:
        return GroupVersion("", "")


def _printed_owner(reference: Mapping[str, Any]) -> dict[str, Any]:
    """Return a reference as Go prints it: its texts always, its flags if set."""
    printed: dict[str, Any] = {name: reference.get(name) or "" for name in _OWNER_FIELDS}
    for name in ("controller", "blockOwnerDeletion"):
        if reference.get(name) is not None:
            printed[name] = reference[name]
    return printed


def new_finalizers(new: Meta, old: Meta, path: str = "metadata") -> list[FieldError]:
    """Return the error of finalizers that are added to what is being deleted."""
    if not old.get("deletionTimestamp"):
        return []
    extra = sorted(set(new.get("finalizers") or ()) - set(old.get("finalizers") or ()))
    if not extra:
        return []
    printed = ", ".join(go_value(each) for each in extra)
    detail = (
        "no new finalizers can be added if the object is being deleted, found new finalizers"
        f" []string{{{printed}}}"
    )
    return [forbidden(child(path, "finalizers"), detail)]


def _unprintable(path: str, manager: str) -> list[FieldError]:
    errors: list[FieldError] = []
    position = 0
    for character in manager:
        if not character.isprintable():
            detail = f"invalid character U+{ord(character):04X} (at position {position})"
            errors.append(invalid(path, manager, detail))
        position += len(character.encode("utf-8", "surrogatepass"))
    return errors


def _keep(meta: Meta, old: Meta, name: str) -> None:
    if name in old:
        meta[name] = old[name]
    else:
        meta.pop(name, None)


def _covered(errors: Iterable[FieldError]) -> list[FieldError]:
    return [each._replace(covered=True) for each in errors]


def _namespace_mismatch() -> ApiError:
    return bad_request(
        "the namespace of the provided object does not match the namespace sent on the request"
    )
