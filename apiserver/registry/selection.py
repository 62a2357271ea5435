"""Selections of lists and watches: a range of keys, and a condition on labels and fields.

    Selection.of(pods, "a", labels.parse("app=web"), fields.parse("spec.nodeName=n1"))
    → keys from "a/" to "a0", records with that label and that field

`metadata.name` and `metadata.namespace` narrow the range where they can. Other fields are those
that the collection keeps beside its records; `fields_of` translates for endpoints with other
fields.
"""

from collections.abc import Callable, Mapping
from typing import Final

from kvstack.apimachinery.objects.fields import FieldSelector
from kvstack.apimachinery.objects.labels import NOTHING, Selector
from kvstack.apiserver.registry.collection import Collection
from kvstack.apiserver.registry.keys import end_of
from kvstack.apiserver.registry.record import Record

Matches = Callable[[Record], bool]
FieldsOf = Callable[[Record], Mapping[str, str]]

NAME: Final = "metadata.name"
NAMESPACE: Final = "metadata.namespace"


class Selection:
    """A range of keys and a condition."""

    __slots__ = (
        "end",
        "exact_field",
        "identity",
        "key",
        "matches",
        "needs_converted",
        "prefix",
        "start",
    )

    def __init__(
        self,
        prefix: str = "",
        *,
        key: str | None = None,
        matches: Matches | None = None,
        exact_field: tuple[int, str] | None = None,
        identity: object = None,
        needs_converted: bool = False,
    ) -> None:
        """prefix: a prefix, or one key; matches: None for no condition."""
        self.prefix: Final = prefix
        """The base of continue tokens: `namespace/`, or empty."""
        self.key: Final = key
        """The only key that may match; None: any in the range."""
        self.start: Final = prefix if key is None else key
        self.end: Final = end_of(prefix) if key is None else f"{key}\0"
        self.matches: Final = matches
        self.exact_field: Final = exact_field
        """A field with a required value: its index in `Record.fields`, and the value."""
        self.needs_converted: Final = needs_converted
        """Whether `matches` only works on records whose conversion is cached."""
        self.identity: Final = (prefix, key, identity)
        """Equal for equal selections."""

    @classmethod
    def of(
        cls,
        collection: Collection,
        namespace: str,
        labels: Selector,
        fields: FieldSelector,
        fields_of: FieldsOf | None = None,
        *,
        is_converted: bool = False,
    ) -> "Selection":
        """Return the selection of a request; namespace "": all, or cluster-scoped.

        is_converted: whether `fields_of` needs records whose conversion is cached.
        """
        name = fields.exact_value(NAME)
        if collection.is_namespaced and not namespace:
            namespace = fields.exact_value(NAMESPACE) or ""
        prefix = f"{namespace}/" if namespace and collection.is_namespaced else ""
        key = None
        if name and (prefix or not collection.is_namespaced):
            key = prefix + name
        rest = _without(fields, None if key is None else name, namespace if prefix else "")
        exact = None
        names = collection.codec.field_names
        for each in fields.requirements if fields_of is None else ():
            if each.is_equal and each.field in names:
                exact = (names.index(each.field), each.value)
                break
        return cls(
            prefix,
            key=key,
            matches=_matches(collection, labels, rest, fields_of),
            exact_field=exact,
            identity=(labels, fields, fields_of is None),
            needs_converted=is_converted and fields_of is not None and not rest.is_everything,
        )

    def unfiltered(self) -> "Selection":
        """Return the selection of the same range without a condition."""
        return Selection(self.prefix, key=self.key)

    def covers(self, key: str) -> bool:
        """Return whether a key is in the range."""
        if self.key is not None:
            return key == self.key
        return key.startswith(self.prefix)


def _without(fields: FieldSelector, name: str | None, namespace: str) -> FieldSelector:
    """Return a selector without what the range already implies."""
    said = {(NAME, name), (NAMESPACE, namespace)}
    rest = [
        each
        for each in fields.requirements
        if not (each.is_equal and (each.field, each.value) in said)
    ]
    return fields if len(rest) == len(fields.requirements) else FieldSelector(rest)


def _matches(
    collection: Collection, labels: Selector, fields: FieldSelector, fields_of: FieldsOf | None
) -> Matches | None:
    match_fields = None if fields.is_everything else _by_fields(collection, fields, fields_of)
    if labels is NOTHING or not labels.is_everything:
        match_labels = labels.matches
        if match_fields is None:
            return lambda record: match_labels(record.labels)
        by_fields = match_fields
        return lambda record: match_labels(record.labels) and by_fields(record)
    return match_fields


def _by_fields(
    collection: Collection, fields: FieldSelector, fields_of: FieldsOf | None
) -> Matches:
    names = collection.codec.field_names
    if fields_of is None and all(each.field in names for each in fields.requirements):
        conditions = [
            (names.index(each.field), each.is_equal, each.value) for each in fields.requirements
        ]
        if len(conditions) == 1:
            field_index, is_equal, value = conditions[0]
            return lambda record: (
                bool(record.fields) and ((record.fields[field_index] == value) is is_equal)
            )
        return lambda record: (
            bool(record.fields)
            and all(
                (record.fields[field_index] == value) is is_equal
                for field_index, is_equal, value in conditions
            )
        )

    def matches(record: Record) -> bool:
        if record.error:
            return False
        known = zip(names, record.fields, strict=True) if fields_of is None else fields_of(record)
        found = dict(known)
        found[NAME], found[NAMESPACE] = record.name, record.namespace
        return fields.matches(found)

    return matches
