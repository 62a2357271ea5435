"""Strategic merge patch: a merge patch that knows which lists are merged, and by which key.

    apply({"spec": {"containers": [{"name": "a", "image": "x"}]}},
          {"spec": {"containers": [{"name": "a", "image": "y"}, {"name": "b"}]}}, pod)
    → {"spec": {"containers": [{"name": "a", "image": "y"}, {"name": "b"}]}}

Fields say in their type how they merge (`Field.patch_strategies`, `Field.patch_merge_key`). A patch
steers by members of its own:

    $patch: replace | delete           of an object, or of an item of a merged list
    $retainKeys: [a, b]                members the object may keep
    $deleteFromPrimitiveList/F: [x]    values to be removed from the list F
    $setElementOrder/F: [...]          the order the list F is to have

Merging takes the patch apart; refusals quote what is left of it. Where upstream panics (items of a
list that are null, objects as keys), the patch is refused as malformed.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError, bad_request, generic, unknown
from kvstack.apimachinery.objects.text.go_text import go_plain, quote
from kvstack.apimachinery.objects.text.json_text import Json, copied
from kvstack.apimachinery.schema.types import Field, Shape, Type

Items = list[Any]

DIRECTIVE: Final = "$patch"
RETAIN_KEYS: Final = "$retainKeys"
DELETE_FROM: Final = "$deleteFromPrimitiveList"
SET_ORDER: Final = "$setElementOrder"

_GO_TYPES: Final = {
    dict: "map[string]interface {}",
    list: "[]interface {}",
    str: "string",
    bool: "bool",
    int: "int64",
    float: "float64",
    type(None): "%!s(<nil>)",
}
_GO_KINDS: Final = {Shape.MAP: "map", Shape.LIST: "slice", Shape.STRUCT: "struct"}
_SCALAR_KINDS: Final = {
    Shape.INT32: "int32",
    Shape.INT64: "int64",
    Shape.FLOAT64: "float64",
    Shape.BOOL: "bool",
    Shape.STRING: "string",
    Shape.BYTES: "slice",
}


class Patched(NamedTuple):
    """The result of a patch."""

    obj: Object
    """The object before decoding: it may hold fields its type does not know, and wrong types."""
    rest: Object
    """The patch without what was used up; refusals of the object quote it (`go_plain`)."""


def apply(obj: Object, patch: Object, type_: Type) -> Patched:
    """Return the patched object; obj and patch stay as they are; raises ApiError."""
    mine, rest = copied(obj), copied(patch)
    return Patched(_merge_map(mine, rest, type_), rest)


def _merge_map(original: Object, patch: Object, type_: Type) -> Object:
    """Merge an object of a patch into the original; return the result, or its replacement."""
    if DIRECTIVE in patch:
        directive = patch[DIRECTIVE]
        if directive == "replace":
            del patch[DIRECTIVE]
            return patch
        if directive == "delete":
            return {}
        raise _bad_directive(directive, patch)
    _retain_keys(original, patch)
    for name in [each for each in patch if each.startswith(SET_ORDER)]:
        _merge_ordered(original, patch, name, type_)
    for name in list(patch):
        if name.startswith(DELETE_FROM):
            field = _name_after(name, DELETE_FROM, "primitive list") or name
            _merge_member(original, field, patch[name], type_, is_deletion=True)
        else:
            _merge_member(original, name, patch[name], type_, is_deletion=False)
    return original


def _merge_member(
    original: Object, name: str, value: Json, type_: Type, *, is_deletion: bool
) -> None:
    """Merge one member of a patch; a deletion only takes values out of a list."""
    if value is None:
        original.pop(name, None)
        return
    current = original.get(name)
    if name not in original or type(current) is not type(value):
        if not is_deletion:
            _discard_nulls(value)
            _set(original, name, value)
    elif isinstance(value, dict):
        field = _field(type_, name)
        if _strategy(field) == "replace":
            original[name] = value
        else:
            original[name] = _merge_map(original[name], value, field.type)
    elif isinstance(value, list):
        field, element = _list_field(type_, name)
        if is_deletion or _strategy(field) == "merge":
            merged = _merge_list(original[name], value, field, element, is_deletion=is_deletion)
            original[name] = merged.items
        else:
            original[name] = value
    else:
        original[name] = value


def _set(original: Object, name: str, value: Json) -> None:
    """Take over a value of a patch without the parts of it that are directives."""
    kept = _without_directives(value)
    if kept is _DROPPED:
        original.pop(name, None)
    else:
        original[name] = kept


_DROPPED: Final = object()


def _without_directives(value: Json) -> Json:
    if isinstance(value, dict):
        if DIRECTIVE in value:
            return _DROPPED
        for name in list(value):
            _set(value, name, value[name])
        return value
    if isinstance(value, list):
        kept = [_without_directives(each) for each in value]
        return [each for each in kept if each is not _DROPPED]
    return value


def _discard_nulls(value: Json) -> None:
    if isinstance(value, dict):
        for name in [name for name, each in value.items() if each is None]:
            del value[name]
        for each in value.values():
            _discard_nulls(each)
    elif isinstance(value, list):
        for each in value:
            _discard_nulls(each)


def _retain_keys(original: Object, patch: Object) -> None:
    """Drop the members that `$retainKeys` does not list."""
    if RETAIN_KEYS not in patch:
        return
    keys = patch.pop(RETAIN_KEYS)
    if not isinstance(keys, list):
        raise _bad_format("retainKeys")
    retained = {each for each in keys if isinstance(each, str)}
    for name, value in patch.items():
        is_directive = name.startswith((DELETE_FROM, SET_ORDER))
        if value is not None and not is_directive and name not in retained:
            raise _bad_format("retainKeys")
    for name in [each for each in original if each not in retained]:
        del original[name]


class _Merged(NamedTuple):
    """A merged list, and the original one as upstream finds it afterwards."""

    items: Items
    leftover: Items
    """What the memory of the original list holds: items moved up over those that were deleted, and
    then new ones. Upstream takes the order of the server from it."""


def _merge_list(
    original: Items, patch: Items, field: Field, element: Type, *, is_deletion: bool
) -> _Merged:
    if not original and not patch:
        return _Merged(original, original)
    key = field.patch_merge_key
    if not _are_maps(original, patch):
        if is_deletion:
            gone = set(map(_identity, patch))
            return _Merged([each for each in original if _identity(each) not in gone], original)
        if key:
            raise _bad_type(dict, (original or patch)[0])
        merged = list({_identity(each): each for each in [*patch, *original]}.values())
        ordered = _ordered(merged, patch, original, _identity)
        return _Merged(ordered, original)
    if not key:
        kind = _GO_KINDS.get(element.shape) or _SCALAR_KINDS.get(element.shape, "struct")
        raise unknown(f"cannot merge lists without merge key for {kind}")
    kept, leftover, additions = _special_items(original, patch, key)
    items = _merge_items(kept, leftover, additions, key, element)
    ordered = _ordered(items, additions, kept, _key_identity(key))
    return _Merged(ordered, leftover)


def _special_items(original: Items, patch: Items, key: str) -> tuple[Items, Items, Items]:
    """Obey the items of a patch that are directives.

    Return what is left of the original, what its memory holds, and the other items of the patch.
    """
    kept, leftover = list(original), list(original)
    additions: Items = []
    is_replaced = False
    for item in patch:
        directive = item.get(DIRECTIVE)
        if DIRECTIVE not in item:
            additions.append(item)
        elif directive == "delete":
            wanted = _identity(_key_value(item, key))
            while (position := _position(kept, key, wanted)) >= 0:
                leftover[position : len(kept) - 1] = leftover[position + 1 : len(kept)]
                del kept[position]
        elif directive == "replace":
            is_replaced = True
        elif directive == "merge":
            raise unknown("merging lists cannot yet be specified in the patch")
        else:
            raise _bad_directive(directive, item)
    if is_replaced:
        # The items of the patch are now the original, and nothing is merged into it.
        for item in additions:
            _key_value(item, key)
        return additions, leftover, []
    return kept, leftover, additions


def _merge_items(kept: Items, leftover: Items, additions: Items, key: str, element: Type) -> Items:
    """Return the original's items with those of the patch merged in, new ones at the end."""
    items = list(kept)
    positions = _ranks([each for each in kept if key in each], _key_identity(key))
    if len(positions) < len(kept):
        positions = {each: _position(kept, key, each) for each in positions}
    has_room = True
    for item in additions:
        wanted = _identity(_key_value(item, key))
        position = positions.setdefault(wanted, len(items))
        if position < len(items):
            items[position] = _merge_map(items[position], item, element)
            if position < len(leftover):
                leftover[position] = items[position]
            continue
        has_room = has_room and len(items) < len(leftover)
        if has_room:
            leftover[len(items)] = item
        items.append(item)
    return items


def _merge_ordered(original: Object, patch: Object, directive: str, type_: Type) -> None:
    """Merge the list a `$setElementOrder` names, and put it into that order."""
    order = patch.pop(directive)
    if not isinstance(order, list):
        raise _bad_type(list, order)
    name = _name_after(directive, SET_ORDER, "setElementOrder list")
    current = _list_or_none(original, name)
    changes = _list_or_none(patch, name)
    field, element = _list_field(type_, name)
    key = field.patch_merge_key
    _check_order(changes or [], order, key)
    if current is None and changes is None:
        return
    merged = _Merged(current or [], current or [])
    if current is None:
        merged = _Merged(_without_directives(changes), [])
    elif changes is not None:
        if _strategy(field) == "merge":
            merged = _merge_list(current, changes, field, element, is_deletion=False)
        else:
            merged = _Merged(changes, current)
    if not current and not changes:
        raise unknown("no elements in any of the given slices")
    are_maps = _are_maps(current or [], changes or [])
    if not key and are_maps:
        raise _bad_format("setElementOrder list")
    if key and merged.items:
        _check_maps(order)
    identity = _key_identity(key) if key else _identity
    original[name] = _ordered(merged.items, order, merged.leftover, identity)
    patch.pop(name, None)


def _check_order(changes: Items, order: Items, key: str) -> None:
    """Check that the items of a patch are in the order that it requests."""
    if not order or not changes:
        return
    identity = _key_identity(key) if key else _identity
    position = 0
    for item in changes:
        directive = item.get(DIRECTIVE) if isinstance(item, dict) else None
        if key and not isinstance(item, dict):
            raise _bad_type(dict, item)
        if key and directive == "delete":
            continue
        if directive is None:
            wanted = identity(item)
            while position < len(order) and identity(order[position]) != wanted:
                position += 1
        if position == len(order):
            raise unknown(
                f"The order in patch list:\n{go_plain(changes)}\n"
                f" doesn't match {SET_ORDER} list:\n{go_plain(order)}\n"
            )
        position += directive is None


def _check_maps(order: Items) -> None:
    for position, each in enumerate(order):
        if not isinstance(each, dict):
            raise unknown(f"value for key {position} is not a map")


def _ordered(
    items: Items, order: Items, server_order: Items, identity: Callable[[Json], object]
) -> Items:
    """Return the items in the order of the patch, those it does not name as the server had them.

    One of the server's comes before the next of the patch's only if the server had it so; hence new
    items stand before what follows them.
    """
    ranks = _ranks(order, identity)
    server_ranks = _ranks(server_order, identity)
    named = [each for each in items if identity(each) in ranks]
    others = [each for each in items if identity(each) not in ranks]
    # Turned round, so that the first is cheap to take.
    left = _sorted_by(others, [server_ranks.get(identity(each), -1) for each in others])[::-1]
    right = _sorted_by(named, [ranks[identity(each)] for each in named])
    result: Items = []
    for item in right:
        rank = server_ranks.get(identity(item), -1)
        while left and 0 <= server_ranks.get(identity(left[-1]), -1) < rank:
            result.append(left.pop())
        result.append(item)
    return result + left[::-1]


def _ranks(items: Items, identity: Callable[[Json], object]) -> dict[object, int]:
    ranks: dict[object, int] = {}
    for position, item in enumerate(items):
        ranks.setdefault(identity(item), position)
    return ranks


def _sorted_by(items: Items, ranks: Sequence[int]) -> Items:
    """Return the items sorted by rank; -1: it has none.

    Upstream's sort takes items without a rank for smaller than any other, so they wander to the
    front, the last of them first.
    """
    result: list[tuple[int, Json]] = []
    for rank, item in zip(ranks, items, strict=True):
        position = len(result)
        while position > 0 and not 0 <= result[position - 1][0] <= rank:
            position -= 1
        result.insert(position, (rank, item))
    return [item for _, item in result]


def _identity(value: Json) -> object:
    """Return a key that distinguishes scalars: 1, 1.0 and true differ; raises ApiError."""
    if isinstance(value, (dict, list)):
        raise _bad_format("primitive list")
    return (type(value), value)


def _key_identity(key: str) -> Callable[[Json], object]:
    def identity(item: Json) -> object:
        if not isinstance(item, dict):
            raise _bad_type(dict, item)
        return _identity(_key_value(item, key))

    return identity


def _key_value(item: Object, key: str) -> Json:
    if key not in item:
        raise unknown(f"map: {go_plain(item)} does not contain declared merge key: {key}")
    return item[key]


def _position(items: Items, key: str, value: object) -> int:
    for position, item in enumerate(items):
        if key in item and _identity(item[key]) == value:
            return position
    return -1


def _are_maps(*lists: Items) -> bool:
    """Return whether the items are objects; raises ApiError if they are of different types."""
    first: type | None = None
    for item in (item for items in lists for item in items):
        if first is None:
            first = type(item)
            if first is list:
                raise generic(422)
            if item is None:
                raise bad_request("invalid JSON document")
        elif type(item) is not first:
            raise unknown(f"list element types are not identical: {go_plain(list(lists))}")
    return first is dict


def _field(type_: Type, name: str) -> Field:
    """Return a field of a struct; raises ApiError."""
    if type_.shape is not Shape.STRUCT and type_.shape is not Shape.RAW:
        kind = _GO_KINDS.get(type_.shape) or _SCALAR_KINDS.get(type_.shape, "struct")
        raise unknown(f"merging an object in json but data type is not struct, instead is: {kind}")
    field = type_.fields.get(name)
    if field is None:
        folded = name.casefold()
        field = next((each for key, each in type_.fields.items() if key.casefold() == folded), None)
    if field is None:
        struct = type_.go_kind.rpartition(".")[2]
        raise unknown(
            f"unable to find api field in struct {struct} for the json field {quote(name)}"
        )
    return field


def _list_field(type_: Type, name: str) -> tuple[Field, Type]:
    """Return a field of a struct and the type of its items; raises ApiError."""
    field = _field(type_, name)
    element = field.type.element
    if field.type.shape is not Shape.LIST or element is None:
        raise unknown("expected slice or array type, but got: struct")
    if element.shape is Shape.LIST:
        raise unknown("unexpected slice of slice")
    return field, element


def _strategy(field: Field) -> str:
    """Return how a field merges: `merge`, `replace`, or empty for the rule of its shape."""
    return next((each for each in field.patch_strategies if each != "retainKeys"), "")


def _list_or_none(obj: Object, name: str) -> Items | None:
    if name not in obj:
        return None
    value = obj[name]
    if not isinstance(value, list):
        raise _bad_type(list, value)
    return value


def _name_after(directive: str, prefix: str, kind: str) -> str:
    """Return the field that a directive names after a slash."""
    head, slash, name = directive.partition("/")
    if not slash or head != prefix:
        raise _bad_format(kind)
    return name


def _bad_format(kind: str) -> ApiError:
    return bad_request(f"invalid patch format of {kind}")


def _bad_type(expected: type, value: Json) -> ApiError:
    return unknown(f"expected a {_GO_TYPES[expected]}, but received a {_GO_TYPES[type(value)]}")


def _bad_directive(directive: Json, obj: Object) -> ApiError:
    shown = directive
    if not isinstance(directive, str):
        inner = "" if directive is None else f"{_GO_TYPES[type(directive)]}="
        shown = f"%!s({inner}{go_plain(directive)})"
    return unknown(f"unknown patch type: {shown} in map: {go_plain(obj)}")
