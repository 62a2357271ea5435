"""The fields in which two objects differ, by their type.

    field_changes(before, after, type_)   → [FieldChange(("spec", "replicas"), 2, 5), …]

    lists of type `map`     items with the same keys are compared: containers[web].image
    lists of type `set`     what came and went, in whatever order
    other lists             item by item while both have them
    quantities              by amount: 1000m is 1
    absent, null, empty     the same

Fields in `IGNORED` change on their own and mean nothing.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from kvstack.apimachinery.objects import quantity
from kvstack.apimachinery.schema.types import Shape, Type
from kvstack.apimachinery.well_known import LAST_APPLIED_ANNOTATION

Path: TypeAlias = tuple[str, ...]

ABSENT: Final = None
IGNORED: Final[frozenset[Path]] = frozenset(
    (
        ("metadata", "managedFields"),
        ("metadata", "resourceVersion"),
        ("metadata", "generation"),
        ("metadata", "uid"),
        ("metadata", "creationTimestamp"),
        ("metadata", "selfLink"),
        ("metadata", "annotations", LAST_APPLIED_ANNOTATION),
        ("status", "observedGeneration"),
    )
)
_TIMES: Final = frozenset(
    ("lastHeartbeatTime", "lastProbeTime", "lastTransitionTime", "lastUpdateTime", "renewTime")
)
"""Fields with the time of a check, or of a change of a neighbouring field."""
_WHOLE: Final = (("args",), ("command",))
"""Lists whose items mean nothing without those before them."""
_EMPTY: Final[tuple[object, ...]] = (None, "", {}, [])


class FieldChange(NamedTuple):
    """One field; None: it is absent."""

    path: Path
    before: Any
    after: Any

    @property
    def text(self) -> str:
        """Return the path as people write it: `spec.containers[web].image`."""
        found = ""
        for each in self.path:
            found += each if each.startswith("[") else f".{each}"
        return found.removeprefix(".")


def field_changes(before: object, after: object, type_: Type | None) -> list[FieldChange]:
    """Return where two objects differ, in the order of their fields."""
    return list(_changes((), before, after, type_))


def _changes(
    path: Path, before: object, after: object, type_: Type | None
) -> Iterator[FieldChange]:
    if before == after or path in IGNORED or (path and path[-1] in _TIMES):
        return
    if isinstance(before, dict) and isinstance(after, dict):
        yield from _of_members(path, before, after, type_)
    elif isinstance(before, list) and isinstance(after, list):
        yield from _of_items(path, before, after, type_)
    elif not _is_same(before, after, type_):
        yield FieldChange(path, before, after)


def _is_same(before: object, after: object, type_: Type | None) -> bool:
    if before in _EMPTY and after in _EMPTY:
        return True
    if type_ is not None and type_.shape is Shape.QUANTITY:
        try:
            amounts = [quantity.parse(str(each)) for each in (before, after)]
            return quantity.compare(*amounts) == 0
        except quantity.QuantityError:
            return False
    return False


def _of_members(
    path: Path, before: Mapping[str, Any], after: Mapping[str, Any], type_: Type | None
) -> Iterator[FieldChange]:
    for name in (*before, *(each for each in after if each not in before)):
        yield from _changes(
            (*path, name), before.get(name), after.get(name), _type_of_member(type_, name)
        )


def _type_of_member(type_: Type | None, name: str) -> Type | None:
    if type_ is None:
        return None
    if type_.shape is Shape.STRUCT:
        field = type_.fields.get(name)
        return type_.additional if field is None else field.type
    return type_.element if type_.shape in (Shape.MAP, Shape.RAW) else None


def _of_items(
    path: Path, before: Sequence[Any], after: Sequence[Any], type_: Type | None
) -> Iterator[FieldChange]:
    element = None if type_ is None else type_.element
    keys = _keys(type_, before, after)
    if keys:
        old, new = (_by_keys(each, keys) for each in (before, after))
        for key in (*old, *(each for each in new if each not in old)):
            yield from _changes((*path, f"[{key}]"), old.get(key), new.get(key), element)
    elif type_ is not None and type_.list_type == "set":
        gone = [each for each in before if each not in after]
        come = [each for each in after if each not in before]
        if gone or come:
            yield FieldChange(path, gone or None, come or None)
    elif len(before) == len(after) and path[-1:] not in _WHOLE:
        for number, (one, other) in enumerate(zip(before, after, strict=True)):
            yield from _changes((*path, f"[{number}]"), one, other, element)
    else:
        yield FieldChange(path, list(before), list(after))


def _keys(type_: Type | None, before: Sequence[Any], after: Sequence[Any]) -> tuple[str, ...]:
    """Return the fields that identify the items of a list; none: it has none."""
    items = [*before, *after]
    if not all(isinstance(each, dict) for each in items):
        return ()
    if type_ is not None:
        keys = type_.list_keys if type_.list_type == "map" else ()
    else:
        keys = ("name",)  # as nearly all lists of objects have it
    is_known = bool(keys) and all(any(name in each for name in keys) for each in items)
    if not is_known:
        return ()
    are_unique = all(len(_by_keys(each, keys)) == len(each) for each in (before, after))
    return keys if are_unique else ()


def _by_keys(items: Sequence[Any], keys: tuple[str, ...]) -> dict[str, Any]:
    return {",".join(str(each[name]) for name in keys if name in each): each for each in items}
