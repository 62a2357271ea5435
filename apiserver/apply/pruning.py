"""Removal of fields that an applier no longer applies and nobody else owns.

    last applied  .data.a .data.b      now  .data.a      → .data.b is removed, unless another owns
    it

Such a field is removed with all unowned fields below it; an item or field on the way to an owned
one stays. The last applied set may be of another version than the current apply: the object is then
converted in both directions.
"""

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apiserver.apply.endpoint import Endpoint, Versioned
from kvstack.apiserver.apply.field_set import (
    FieldSet,
    difference,
    intersection,
    is_subset,
    union,
)
from kvstack.apiserver.apply.managed_fields import Managed, Managers
from kvstack.apiserver.apply.ownership import fields_of, with_named_fields
from kvstack.apiserver.apply.removal import remove


def prune(
    endpoint: Endpoint, merged: Object, managers: Managers, last: Managed, now: FieldSet
) -> Object:
    """Return the merged object without what the applier no longer applies.

    managers: all of them, the applier with its current set; last: its previous set; now: its
    current one. Raises ConversionError.
    """
    if last.api_version == endpoint.api_version and is_subset(last.fields, now):
        # The owner of a field owns every item on its path, so nothing can be removed.
        return merged
    whole = endpoint.at_version(endpoint.versioned(merged), last.api_version)
    if whole is None or not last.fields:
        return merged
    last_fields = with_named_fields(last.fields, whole.type)
    whole_fields = _named_fields(whole)
    pruned = _with_owned(endpoint, whole, whole_fields, _without(whole, last_fields), managers)
    gone = intersection(difference(whole_fields, _named_fields(pruned)), last_fields)
    back = endpoint.at_version(_without(whole, gone), endpoint.api_version)
    return merged if back is None else back.obj


def _with_owned(
    endpoint: Endpoint,
    whole: Versioned,
    whole_fields: FieldSet,
    pruned: Versioned,
    managers: Managers,
) -> Versioned:
    """Return the pruned object with owned fields restored, at its original version."""
    version = whole.api_version
    owned = _owned_at_versions(managers)
    # At the pruned version first: a conversion may need a restored field.
    for each in sorted(owned, key=lambda name: (name != version, name)):
        there = endpoint.at_version(whole, each)
        pruned_there = endpoint.at_version(pruned, each)
        if there is None or pruned_there is None:
            continue
        fields = whole_fields if there is whole and each == version else _named_fields(there)
        kept = union(_named_fields(pruned_there), with_named_fields(owned[each], there.type))
        whole, pruned = there, _without(there, difference(fields, kept))
    back = endpoint.at_version(pruned, version)
    return pruned if back is None else back


def _owned_at_versions(managers: Managers) -> dict[str, FieldSet]:
    owned: dict[str, FieldSet] = {}
    for managed in managers.values():
        version = managed.api_version
        owned[version] = union(owned.get(version, {}), managed.fields)
    return owned


def _named_fields(versioned: Versioned) -> FieldSet:
    return with_named_fields(fields_of(versioned.obj, versioned.type), versioned.type)


def _without(versioned: Versioned, fields: FieldSet) -> Versioned:
    return versioned._replace(obj=remove(versioned.obj, fields, versioned.type) or {})
