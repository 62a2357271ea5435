"""Sets of fields, in the form of FieldsV1.

    {"f:spec": {"f:replicas": {}, "f:ports": {".": {}, "k:{…}": {".": {}, "f:port": {}}}}}

    {}                          a member: the field here is in the set
    {".": {}, "f:a": …}         a member, and fields below it are in the set
    {"f:a": …}                  not a member; only fields below it are in the set

So an entry of managedFields from the store is a set without conversion, and nothing is parsed or
encoded for a manager whose set did not change. At the root `{}` is the empty set: a whole object is
never owned.

Rules: element texts are canonical (path.py); every level is in the order of `path.in_order`; a
level below the root is empty only if the field itself is a member. Sets share their parts and are
never changed in place; each operation returns its first argument if that is the result.
"""

from collections.abc import Iterator
from typing import Final, TypeAlias

from kvstack.apiserver.apply.path import Path, PathElementError, canonical, in_order

FieldSet: TypeAlias = dict[str, "FieldSet"]

SELF: Final = "."
"""Marks that the field of a level is itself a member."""
ANY: Final = "*"
"""Stands in a pattern for each item of a list."""


class FieldsError(ValueError):
    """A text is not a set of fields; the text says why."""


def read(fields: object) -> FieldSet:
    """Return the set of a client's FieldsV1; elements of unknown kinds are left out.

    Raises FieldsError.
    """
    try:
        return _read(fields)[0]
    except PathElementError as error:
        raise FieldsError(str(error)) from error
    except RecursionError as error:
        raise FieldsError("exceeded max depth") from error


def of_paths(*paths: Path) -> FieldSet:
    """Return the set of some paths."""
    fields: FieldSet = {}
    for path in paths:
        fields = union(fields, of_path(path))
    return fields


def of_path(path: Path) -> FieldSet:
    """Return the set of one path; for the empty path the empty set."""
    fields: FieldSet = {}
    for element in reversed(path):
        fields = {element: fields}
    return fields


def contains(fields: FieldSet, path: Path) -> bool:
    """Return whether the path is a member."""
    node: FieldSet | None = fields
    for element in path:
        node = node.get(element) if node else None
    return bool(path) and node is not None and (not node or SELF in node)


def paths(fields: FieldSet) -> Iterator[Path]:
    """Yield the members: on each level first its own, then those below."""
    yield from _paths(fields, ())


def is_subset(fields: FieldSet, others: FieldSet) -> bool:
    """Return whether every member of the first set is a member of the second."""
    for element, node in fields.items():
        other = others.get(element)
        if other is None:
            return False
        if other is not node and not _is_subset_node(node, other):
            return False
    return True


def union(fields: FieldSet, others: FieldSet) -> FieldSet:
    """Return the members of either set."""
    joined, has_new = fields, False
    for element, other in others.items():
        node = fields.get(element)
        if node is None:
            both, has_new = other, True
        else:
            both = _union_node(node, other)
        if both is not node:
            if joined is fields:
                joined = dict(fields)
            joined[element] = both
    return sort_level(joined) if has_new else joined


def intersection(fields: FieldSet, others: FieldSet) -> FieldSet:
    """Return the members of both sets."""
    common: FieldSet = {}
    is_same = True
    for element, node in fields.items():
        other = others.get(element)
        both = None if other is None else _intersection_node(node, other)
        if both is not None:
            common[element] = both
        is_same = is_same and both is node
    return fields if is_same else common


def difference(fields: FieldSet, others: FieldSet) -> FieldSet:
    """Return the members that are not members of the other set."""
    return _without(fields, others, takes_below=False)


def recursive_difference(fields: FieldSet, others: FieldSet) -> FieldSet:
    """Return the members that are neither members of the other set nor below one."""
    return _without(fields, others, takes_below=True)


def pattern_of(*paths: Path) -> FieldSet:
    """Return what `matching` takes, of paths that have ANY for the items of a list."""
    pattern: FieldSet = {}
    for path in paths:
        level = pattern
        for element in path:
            level = level.setdefault(element, {})
    return pattern


def matching(fields: FieldSet, pattern: FieldSet) -> FieldSet:
    """Return the members on the way to the paths of a pattern, at them, and below them."""
    if not pattern:
        return fields
    kept: FieldSet = {}
    for element, node in fields.items():
        below = pattern.get(element, pattern.get(ANY))
        if element == SELF:
            kept[element] = node
        elif below is not None:
            part = _as_node(matching(node, below)) if node else node
            if part is not None:
                kept[element] = part
    return kept


def sort_level(level: FieldSet) -> FieldSet:
    """Return a level in order; the levels below are unchanged."""
    if len(level) < 2:
        return level
    return {element: level[element] for element in in_order(level)}


def _read(fields: object) -> tuple[FieldSet, bool]:
    """Return the level of a field, and whether the field itself is a member."""
    if fields is None:
        return {}, True
    if not isinstance(fields, dict):
        raise FieldsError(f"expect {{ or n, but found {fields!r}")
    below: FieldSet = {}
    for text, content in fields.items():
        if text == SELF:
            continue
        element = canonical(text)
        if element is None:
            continue
        node, is_member = _read(content)
        if node and is_member:
            node = {SELF: {}, **node}
        below[element] = _union_node(below[element], node) if element in below else node
    return sort_level(below), SELF in fields or not below


def _paths(level: FieldSet, prefix: Path) -> Iterator[Path]:
    for element, node in level.items():
        if element != SELF and (not node or SELF in node):
            yield (*prefix, element)
    for element, node in level.items():
        if node:
            yield from _paths(node, (*prefix, element))


def _is_subset_node(node: FieldSet, other: FieldSet) -> bool:
    if not node:
        return not other or SELF in other
    return bool(other) and is_subset(node, other)


def _union_node(node: FieldSet, other: FieldSet) -> FieldSet:
    if node is other:
        return node
    if not other:
        return node if not node or SELF in node else {SELF: {}, **node}
    if not node:
        return other if SELF in other else {SELF: {}, **other}
    return union(node, other)


def _intersection_node(node: FieldSet, other: FieldSet) -> FieldSet | None:
    if not node:
        return node if not other or SELF in other else None
    if not other:
        return {} if SELF in node else None
    return _as_node(intersection(node, other))


def _without(fields: FieldSet, others: FieldSet, *, takes_below: bool) -> FieldSet:
    rest = fields
    for element, other in others.items():
        node = fields.get(element)
        if node is None:
            continue
        left = _without_node(node, other, takes_below)
        if left is not node:
            if rest is fields:
                rest = dict(fields)
            if left is None:
                del rest[element]
            else:
                rest[element] = left
    return rest


def _without_node(node: FieldSet, other: FieldSet, takes_below: bool) -> FieldSet | None:  # noqa: FBT001
    if takes_below and (not other or SELF in other):
        return None
    if not node:
        return None if not other or SELF in other else node
    if not other:
        if SELF not in node:
            return node
        return {element: below for element, below in node.items() if element != SELF}
    return _as_node(_without(node, other, takes_below=takes_below))


def _as_node(level: FieldSet) -> FieldSet | None:
    """Return a level below the root: absent if empty, a member if it only has itself."""
    if not level:
        return None
    return {} if len(level) == 1 and SELF in level else level
