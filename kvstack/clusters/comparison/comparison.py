"""Compares two contents: objects that were added, removed and changed.

    found = compare(before, after)
    found.differences        [Difference(CHANGED, "Deployment", "shop", "web", fields), …]

Objects are compared as they are read, with defaults, in one version each: how a store or a server
writes them makes no difference. One of the same name with another uid was replaced. Leases and
Events change all the time, and every server has addresses and certificates of its own: these are
compared only if requested.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from fnmatch import fnmatchcase
from typing import Final

import orjson

from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.json_object import Object
from kvstack.clusters.comparison.field_changes import FieldChange, field_changes
from kvstack.clusters.contents import ROOT, Contents
from kvstack.clusters.kinds import KeyOf, Kinds, UnreadableError, key_text
from kvstore.client.values import KeyValue

RESTLESS: Final = frozenset(
    (
        GroupResource("", "events"),
        GroupResource("coordination.k8s.io", "leases"),
    )
)
"""Resources that change on their own."""
_OF_SERVERS: Final = (
    "/registry/services/specs/default/kubernetes",
    "/registry/services/endpoints/default/kubernetes",
    "/registry/endpointslices/default/kubernetes",
    "/registry/configmaps/*/kube-root-ca.crt",
    "/registry/configmaps/kube-system/extension-apiserver-authentication",
    "/registry/clustertrustbundles/kubernetes.io:kube-apiserver-serving:*",
)
"""Objects with the address and certificates of a server: every fork has its own."""
_VALUE: Final = ("(value)",)


class Change(Enum):
    """What happened to an object."""

    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"
    REPLACED = "replaced"
    """Another one of the same name."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference of one object."""

    change: Change
    kind: str
    """Empty: it is not known."""
    resource: GroupResource
    namespace: str
    name: str
    fields: tuple[FieldChange, ...] = ()
    before: Object | None = None
    after: Object | None = None

    @property
    def path(self) -> str:
        """Return `namespace/name`, or the name."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


@dataclass(slots=True)
class Comparison:
    """All that is different, in the order of kinds and names."""

    differences: list[Difference] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)
    """Objects that cannot be read on either side, and why."""

    @property
    def counts(self) -> Counter[Change]:
        """The number of objects by change."""
        return Counter(each.change for each in self.differences)


def compare(before: Contents, after: Contents, *, has_all: bool = False) -> Comparison:
    """Return what is different in the second.

    has_all: compare what changes on its own, too, and what belongs to the servers.
    """
    old, new = ({kv.key: kv for kv in each.rows} for each in (before, after))
    kinds_before, kinds_after = Kinds.of(before.rows), Kinds.of(after.rows)
    comparison = Comparison()
    for key in sorted({*old, *new}):
        key_of = kinds_after.find(key) or kinds_before.find(key)
        if not has_all and _is_restless(key, key_of):
            continue
        one, other = old.get(key), new.get(key)
        if one is not None and other is not None and one.value == other.value:
            continue
        try:
            difference = _difference(key, key_of, (kinds_before, one), (kinds_after, other))
        except UnreadableError as error:
            comparison.unreadable.append(str(error))
            continue
        if difference is not None:
            comparison.differences.append(difference)
    comparison.differences.sort(key=lambda each: (each.namespace, str(each.resource), each.name))
    return comparison


def _is_restless(key: bytes, key_of: KeyOf | None) -> bool:
    if key_of is not None and key_of.resource in RESTLESS:
        return True
    text = key_text(key)
    return any(fnmatchcase(text, each) for each in _OF_SERVERS)


def _difference(
    key: bytes,
    key_of: KeyOf | None,
    before: tuple[Kinds, KeyValue | None],
    after: tuple[Kinds, KeyValue | None],
) -> Difference | None:
    old, new = (None if kv is None else _object(kinds, kv) for kinds, kv in (before, after))
    if key_of is None:
        kind, resource, namespace, name = _of_unknown(key, new or old or {})
        type_ = None
    else:
        kind, resource = key_of.kind, key_of.resource
        namespace, name = key_of.namespace, key_of.name
        kinds = after[0] if after[0].find(key) else before[0]
        type_ = kinds.type_of(key_of)
    if old is None:
        return Difference(Change.ADDED, kind, resource, namespace, name, after=new)
    if new is None:
        return Difference(Change.REMOVED, kind, resource, namespace, name, before=old)
    fields = tuple(field_changes(old, new, type_))
    is_another = _uid(old) != _uid(new)
    if not fields and not is_another:
        return None
    change = Change.REPLACED if is_another else Change.CHANGED
    return Difference(change, kind, resource, namespace, name, fields, old, new)


def _object(kinds: Kinds, kv: KeyValue) -> Object:
    if kinds.find(kv.key) is not None:
        return kinds.read(kv)
    try:
        obj = orjson.loads(kv.value)
    except ValueError:
        return {_VALUE[0]: kv.value.hex()}  # of an unknown kind
    return obj if isinstance(obj, dict) else {_VALUE[0]: obj}


def _of_unknown(key: bytes, obj: Mapping[str, object]) -> tuple[str, GroupResource, str, str]:
    parts = key_text(key.removeprefix(ROOT)).split("/")
    if len(parts) > 2 and "." in parts[0]:
        resource, rest = GroupResource(parts[0], parts[1]), parts[2:]
    else:
        resource, rest = GroupResource("", parts[0]), parts[1:]
    namespace, name = ("", "/".join(rest)) if len(rest) < 2 else (rest[0], "/".join(rest[1:]))
    kind = obj.get("kind")
    return kind if isinstance(kind, str) else "", resource, namespace, name


def _uid(obj: Object) -> object:
    return (obj.get("metadata") or {}).get("uid")
