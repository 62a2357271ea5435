"""A value without some of its fields, or with only these.

A map or list that loses its last member becomes null, and so does an atomic one with a removed
descendant. Items without their keys stay. Unchanged parts are shared with the result.
"""

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.schema.types import Type
from kvstack.apiserver.apply.field_set import SELF, FieldSet
from kvstack.apiserver.apply.path import FIELD
from kvstack.apiserver.apply.structure import (
    UNKNOWN,
    ItemError,
    Json,
    is_associative,
    is_granular,
    item_element,
    item_type,
    member_type,
)


def remove(value: Object, fields: FieldSet, type_: Type) -> Object | None:
    """Return a map without the members of a set; None: nothing is left."""
    if not fields:
        return value
    rest: Object = {}
    for name, member in value.items():
        node = fields.get(FIELD + name)
        if node is None:
            rest[name] = member
        elif not _is_member(node):
            rest[name] = _without(member, node, member_type(type_, name) or UNKNOWN)
    return rest or None


def extract(value: Object, fields: FieldSet, type_: Type) -> Object:
    """Return a map with only the members of a set, and their ancestors."""
    kept: Object = {}
    for name, member in value.items():
        node = fields.get(FIELD + name)
        if node is not None:
            kept[name] = _only(member, node, member_type(type_, name) or UNKNOWN)
    return kept


def _is_member(node: FieldSet) -> bool:
    return not node or SELF in node


def _without(value: Json, fields: FieldSet, type_: Type) -> Json:
    if isinstance(value, dict):
        return remove(value, fields, type_) if value and is_granular(type_) else None
    if isinstance(value, list):
        return _without_items(value, fields, type_) if is_associative(type_) else None
    return value


def _without_items(values: list[Json], fields: FieldSet, type_: Type) -> list[Json] | None:
    items = item_type(type_)
    rest: list[Json] = []
    for item in values:
        node = _node_of(item, fields, type_)
        if node is None:
            rest.append(item)
        elif not _is_member(node):
            rest.append(_without(item, node, items))
    return rest or None


def _only(value: Json, fields: FieldSet, type_: Type) -> Json:
    if isinstance(value, dict) and is_granular(type_):
        return extract(value, fields, type_)
    if isinstance(value, list) and is_associative(type_):
        items = item_type(type_)
        nodes = [(item, _node_of(item, fields, type_)) for item in value]
        return [_only(item, node, items) for item, node in nodes if node is not None]
    return value


def _node_of(item: Json, fields: FieldSet, type_: Type) -> FieldSet | None:
    try:
        return fields.get(item_element(item, type_))
    except ItemError:
        return None
