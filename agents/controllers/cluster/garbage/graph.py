"""The graph of owner references of all objects.

    keys = graph.take(PODS, old, new)       a change; keys of nodes to be looked at
    keys = graph.take_absence(identity)     the server has no object of that name and uid

    node ── owners ──► node              An owner that no watch has shown yet is *virtual*: it has
    node ◄── dependents ── node          the identity that a reference claims, until it is seen, or
                                         until the server says that it is not there.

Keys: `delete/<uid>` (does it have to go?), `orphan/<uid>` (let its dependents go on without it),
`complaint/<uid>/<owner uid>` (tell of a reference into another namespace).

References name owners by kind and name, but nothing makes dependents agree on them: an identity
that is proved absent says nothing of dependents that claim another one for the same uid.
"""

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias, cast

from kvstack.agents.client.resource_type import ResourceType
from kvstack.agents.controllers.ownership import is_deleting
from kvstack.agents.reconcile.plan import Later
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.well_known import FOREGROUND_FINALIZER, ORPHAN_FINALIZER

Key: TypeAlias = str | Later


_ABSENT_MAX: Final = 500
_ALTERNATE_S: Final = 1.0


class Identity(NamedTuple):
    """The identity of an object."""

    kind: str
    api_version: str
    namespace: str
    name: str
    uid: str

    def event_text(self) -> str:
        """Return it as events have it."""
        namespace = f"namespace: {self.namespace}, " if self.namespace else ""
        return f"[{self.api_version}/{self.kind}, {namespace}name: {self.name}, uid: {self.uid}]"


_NO_DEPENDENTS: Final[Mapping[str, "Node"]] = MappingProxyType({})
"""Of nearly all objects."""


class Node:
    """An object, or one that others claim as their owner."""

    __slots__ = (
        "dependents",
        "identity",
        "is_being_deleted",
        "is_deleting_dependents",
        "is_virtual",
        "owners",
    )

    def __init__(self, identity: Identity, *, is_virtual: bool) -> None:
        self.identity = identity
        self.is_virtual = is_virtual
        self.is_being_deleted = False
        self.is_deleting_dependents = False
        self.owners: Sequence[Object] = ()
        self.dependents: Mapping[str, Node] = _NO_DEPENDENTS

    def add_dependent(self, node: "Node") -> None:
        """Add an object that names it as its owner."""
        if self.dependents is _NO_DEPENDENTS:
            self.dependents = {}
        cast("dict[str, Node]", self.dependents)[node.identity.uid] = node

    def drop_dependent(self, uid: str) -> None:
        """Remove what no longer names it, if it did."""
        if uid in self.dependents:
            cast("dict[str, Node]", self.dependents).pop(uid)

    @property
    def key(self) -> str:
        """The key under which it is looked at."""
        return f"delete/{self.identity.uid}"

    def blocking_dependents(self) -> list["Node"]:
        """Return the dependents that must be gone before it."""
        uid = self.identity.uid
        return [
            dependent
            for dependent in self.dependents.values()
            if any(
                owner["uid"] == uid and owner.get("blockOwnerDeletion")
                for owner in dependent.owners
            )
        ]


class AbsentOwners:
    """The owners last found absent; the oldest is forgotten first."""

    def __init__(self) -> None:
        self._known: OrderedDict[Identity, None] = OrderedDict()

    def add(self, identity: Identity) -> None:
        """Add an identity."""
        self._known[identity] = None
        self._known.move_to_end(identity)
        if len(self._known) > _ABSENT_MAX:
            self._known.popitem(last=False)

    def __contains__(self, identity: Identity) -> bool:
        """Whether it is known to be absent."""
        if identity not in self._known:
            return False
        self._known.move_to_end(identity)
        return True


class Graph:
    """All objects and their owners."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.absent = AbsentOwners()

    def take(self, resource: ResourceType, old: Object | None, new: Object | None) -> Iterator[Key]:
        """Apply a change of an object; yield the keys to process."""
        obj = new or old or {}
        identity = _identity_of(resource, obj)
        node = self.nodes.get(identity.uid)
        if node is not None and node.is_virtual:
            yield from self._observed(node, identity)
        if new is None:
            if node is not None:
                yield from self._remove(node, identity)
            return
        meta = new["metadata"]
        owners = meta.get("ownerReferences") or ()
        if node is None:
            node = self.nodes[identity.uid] = Node(identity, is_virtual=False)
            node.owners = owners
            node.is_being_deleted = is_deleting(new)
            node.is_deleting_dependents = is_deleting(new) and _has(new, FOREGROUND_FINALIZER)
            yield from self._add_to_owners(node, owners)
        else:
            yield from self._change_owners(node, owners)
            if is_deleting(new):
                node.is_being_deleted = True
        yield from self._transitions(node, old, new)

    def take_absence(self, identity: Identity) -> Iterator[Key]:
        """Record that the server has no such object; yield the keys to process."""
        node = self.nodes.get(identity.uid)
        if node is None:
            return
        if not node.is_virtual and node.identity == identity:
            yield from self._remove(node, identity)
            return
        matching, others = _partition(node.dependents.values(), identity)
        if node.is_virtual and not others:
            yield from self._remove(node, identity)
            return
        if matching:
            self.absent.add(identity)
            for dependent in matching:
                yield dependent.key
        if node.is_virtual and node.identity == identity:
            alternate = _alternate(others, identity)
            if alternate is not None:
                node.identity = alternate
                yield Later(node.key, _ALTERNATE_S)

    # Changes.

    def _observed(self, node: Node, identity: Identity) -> Iterator[Key]:
        """Make a virtual node a real one; those who claimed something else are looked at."""
        if node.identity != identity:
            for dependent in _partition(node.dependents.values(), identity)[1]:
                if identity.namespace and dependent.identity.namespace != identity.namespace:
                    yield _complaint(dependent, identity.uid)
                yield dependent.key
            node.identity = identity
        node.is_virtual = False

    def _add_to_owners(self, node: Node, owners: Iterable[Object]) -> Iterator[Key]:
        is_doubtful = False
        namespace = node.identity.namespace
        for owner in owners:
            owner_node = self.nodes.get(owner["uid"])
            if owner_node is None:
                owner_node = Node(claimed_identity(owner, namespace), is_virtual=True)
                self.nodes[owner["uid"]] = owner_node
                owner_node.add_dependent(node)
                yield owner_node.key
                continue
            owner_node.add_dependent(node)
            if is_doubtful:
                continue
            theirs = owner_node.identity.namespace
            if theirs and theirs != namespace:
                if not owner_node.is_virtual:
                    yield _complaint(node, owner["uid"])
                is_doubtful = True
            elif not _is_named(owner, owner_node.identity) or (
                owner_node.is_virtual and not theirs and namespace
            ):
                is_doubtful = True
        if is_doubtful:
            yield node.key

    def _change_owners(self, node: Node, owners: Sequence[Object]) -> Iterator[Key]:
        before = {owner["uid"]: owner for owner in node.owners}
        after = {owner["uid"]: owner for owner in owners}
        if before == after:
            return
        for uid, owner in before.items():
            new = after.get(uid)
            if owner.get("blockOwnerDeletion") and not (new or {}).get("blockOwnerDeletion"):
                found = self.nodes.get(uid)
                if found is not None:
                    yield found.key
        node.owners = owners
        yield from self._add_to_owners(
            node, [owner for uid, owner in after.items() if uid not in before]
        )
        self._drop_from_owners(node, before.keys() - after.keys())

    def _drop_from_owners(self, node: Node, uids: Iterable[str]) -> None:
        for uid in uids:
            owner = self.nodes.get(uid)
            if owner is not None:
                owner.drop_dependent(node.identity.uid)

    def _transitions(self, node: Node, old: Object | None, new: Object) -> Iterator[Key]:
        if _begins(old, new, ORPHAN_FINALIZER):
            yield f"orphan/{node.identity.uid}"
        elif _begins(old, new, FOREGROUND_FINALIZER):
            node.is_deleting_dependents = True
            for dependent in node.dependents.values():
                yield dependent.key
            yield node.key

    def _remove(self, node: Node, identity: Identity) -> Iterator[Key]:
        self.nodes.pop(node.identity.uid, None)
        self._drop_from_owners(node, [owner["uid"] for owner in node.owners])
        if node.dependents:
            self.absent.add(identity)
        for dependent in node.dependents.values():
            yield dependent.key
        for reference in node.owners:
            owner = self.nodes.get(reference["uid"])
            if owner is not None and owner.is_deleting_dependents:
                yield owner.key


def _identity_of(resource: ResourceType, obj: Object) -> Identity:
    meta = obj["metadata"]
    return Identity(
        resource.kind,
        resource.api_version,
        meta.get("namespace", ""),
        meta["name"],
        meta["uid"],
    )


def claimed_identity(owner: Object, namespace: str) -> Identity:
    """Return the identity that an owner reference claims."""
    return Identity(owner["kind"], owner["apiVersion"], namespace, owner["name"], owner["uid"])


def _is_named(owner: Object, identity: Identity) -> bool:
    """Whether a reference and an identity agree, but for the namespace."""
    return bool(
        owner["uid"] == identity.uid
        and owner["name"] == identity.name
        and owner["kind"] == identity.kind
        and owner["apiVersion"] == identity.api_version
    )


def _complaint(node: Node, owner_uid: str) -> str:
    return f"complaint/{node.identity.uid}/{owner_uid}"


def _has(obj: Object, finalizer: str) -> bool:
    return finalizer in (obj["metadata"].get("finalizers") or ())


def _begins(old: Object | None, new: Object, finalizer: str) -> bool:
    """Whether an object's deletion, with a finalizer, is new."""
    if not is_deleting(new) or not _has(new, finalizer):
        return False
    return old is None or not is_deleting(old) or not _has(old, finalizer)


def _partition(nodes: Iterable[Node], identity: Identity) -> tuple[list[Node], list[Node]]:
    """Return the dependents that claim an identity, and those that claim another of its uid."""
    matching: list[Node] = []
    others: list[Node] = []
    for node in nodes:
        if identity.namespace and identity.namespace != node.identity.namespace:
            others.append(node)
            continue
        named = [
            _is_named(owner, identity) for owner in node.owners if owner["uid"] == identity.uid
        ]
        if True in named:
            matching.append(node)
        if False in named:
            others.append(node)
    return matching, others


def _alternate(nodes: Iterable[Node], absent: Identity) -> Identity | None:
    """Return the next identity that dependents claim, in order, from an absent one on."""
    claimed: set[Identity] = set()
    for node in nodes:
        for owner in node.owners:
            if owner["uid"] != absent.uid:
                continue
            namespace = node.identity.namespace
            if _is_named(owner, absent) and absent.namespace in ("", namespace):
                continue
            identity = claimed_identity(owner, namespace)
            if not absent.namespace and identity[:2] == absent[:2]:
                identity = identity._replace(namespace="")
            claimed.add(identity)
    claimed.discard(absent)
    following = [identity for identity in claimed if identity > absent]
    return min(following or claimed, default=None)
