"""The garbage collector: deletes objects without owners, and orphans dependents.

    discovery ─► watches of all resources ─► graph ─► keys ─► live reads ─► delete or patch

Rules: nothing is deleted but on the server's word: the object and each of its owners are read
first, and the deletion is bound to the uid and resourceVersion that were read. An owner that is
deleted in the foreground waits for the dependents that block it; one that orphans has its reference
taken out of them first. An object of the cluster that claims an owner in a namespace is never
collected.
"""

from collections.abc import Callable, Generator, Sequence
from http import HTTPStatus
from typing import Final, NamedTuple, TypeAlias

from typing_extensions import override

from kvstack.agents.client.built_in import CUSTOM_RESOURCE_DEFINITIONS
from kvstack.agents.client.discovery import Discovery
from kvstack.agents.client.resource_type import ResourceType
from kvstack.agents.controllers.cluster.garbage.graph import (
    Graph,
    Identity,
    Key,
    Node,
    claimed_identity,
)
from kvstack.agents.controllers.ownership import is_deleting
from kvstack.agents.reconcile.plan import (
    Again,
    BaseController,
    Delete,
    Enqueue,
    Follow,
    Get,
    Later,
    Outcome,
    Patch,
    Plan,
    Record,
    Retry,
    Step,
    View,
    Watch,
    discover,
    do,
)
from kvstack.agents.reconcile.plan import (
    Identity as Name,
)
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apimachinery.schema.resource import MERGE_PATCH, STRATEGIC_MERGE_PATCH
from kvstack.apimachinery.well_known import FOREGROUND_FINALIZER, ORPHAN_FINALIZER

_Change: TypeAlias = Callable[[Sequence[Object]], list[Object]]

_DISCOVERY: Final = "discovery"
_DISCOVERY_S: Final = 30.0
_UNCHANGED_S: Final = 600.0
"""How long what is served is taken as the same if no object has changed: of servers of others."""
_AFTER_DEFINITION_S: Final = 1.0
"""The time until a changed definition is served."""
_IGNORED: Final = frozenset((("", "events"), ("events.k8s.io", "events")))
_UNSUPPORTED: Final = HTTPStatus.UNSUPPORTED_MEDIA_TYPE
_FINALIZER_TRIES: Final = 5


class _AbsentError(Exception):
    """The server has no object of this name and uid."""


class _NeverCollectedError(Exception):
    """An object claims an owner in another namespace, or its owner cannot be determined."""


class _UnknownKindError(Exception):
    """No resource of this kind is served."""


class _References(NamedTuple):
    """Owner references by what is known of the owners."""

    solid: list[Object]
    dangling: list[Object]
    waiting: list[Object]


class GarbageCollector(BaseController):
    """Deletes objects whose owners are gone."""

    workers = 20

    def __init__(self, unread_kinds: frozenset[tuple[str, str]] = frozenset()) -> None:
        """Starts without a graph.

        unread_kinds: groups and resources of a copied cluster whose objects could not be copied. An
        owner of such a kind is never taken as gone.
        """
        self._unread_kinds = unread_kinds
        self.identity: Name = Name(
            "garbage-collector-controller",
            "generic-garbage-collector",
            "garbage-collector-controller",
        )
        self.watches: Sequence[Watch] = (
            Watch(CUSTOM_RESOURCE_DEFINITIONS, _discovery_keys, metadata_only=True),
        )
        self._graph = Graph()
        self._served = Discovery()
        self._kinds: dict[tuple[str, str], ResourceType] = {}
        self._followed: frozenset[ResourceType] = frozenset()

    @override
    def initial_keys(self) -> Sequence[Key]:
        """Start with discovery."""
        return (_DISCOVERY,)

    def reconcile(self, key: str, view: View, now_s: float) -> Plan:
        """Return the plan for a node, or for discovery."""
        what, _, uid = key.partition("/")
        if what == _DISCOVERY:
            return (yield from self._discover())
        if what == "complaint":
            yield from self._complain(*uid.split("/"))
            return None
        node = self._graph.nodes.get(uid)
        if node is None:
            return None
        try:
            if what == "orphan":
                yield from self._orphan(node)
            else:
                yield from self._look_at(node)
        except _AbsentError:
            yield [Enqueue(tuple(self._graph.take_absence(node.identity)))]
            return None
        except _NeverCollectedError:
            return None
        except _UnknownKindError as error:
            return Retry(str(error))
        return Retry("it was not seen yet") if node.is_virtual else None

    # What is watched.

    def _discover(self) -> Generator[Step, list[Outcome], Again]:
        discovery = yield from discover()
        self._served = discovery
        self._kinds = {
            (each.resource.api_version, each.resource.kind): each.resource
            for each in discovery.served
        }
        wanted = {
            resource
            for resource in discovery.preferred("delete", "list", "watch")
            if (resource.group, resource.name) not in _IGNORED
        }
        # What is not answered for at the moment is not taken as gone.
        wanted |= {each for each in self._followed if each.api_version in discovery.failures}
        self._followed = frozenset(wanted)
        yield [Follow(self._followed, self._changed)]
        return Again(_DISCOVERY_S, is_routine=True, rests_s=_UNCHANGED_S)

    def _changed(
        self, resource: ResourceType, old: Object | None, new: Object | None, view: View
    ) -> Sequence[Key]:
        return tuple(self._graph.take(resource, old, new))

    def _resource(self, api_version: str, kind: str) -> ResourceType:
        found = self._kinds.get((api_version, kind))
        if found is None:
            raise _UnknownKindError(f"unable to get REST mapping for {api_version}/{kind}.")
        return found

    # One node.

    def _look_at(self, node: Node) -> Generator[Step, list[Outcome], None]:
        if node.is_being_deleted and not node.is_deleting_dependents:
            return
        identity = node.identity
        resource, live = yield from self._read(identity)
        if live is None or live["metadata"]["uid"] != identity.uid:
            raise _AbsentError
        if node.is_deleting_dependents:
            yield from self._release_owner(node, resource)
            return
        references = live["metadata"].get("ownerReferences") or []
        if not references:
            return
        sorted_out = yield from self._sort_out(identity, references)
        if sorted_out.solid:
            lost = [each["uid"] for each in (*sorted_out.dangling, *sorted_out.waiting)]
            if lost:
                yield from self._drop_references(node, resource, lost)
        elif sorted_out.waiting and node.dependents:
            if any(each.is_deleting_dependents for each in node.dependents.values()):
                yield from self._unblock(node, resource, references)
            yield from self._delete(identity, resource, live, "Foreground")
        else:
            yield from self._delete(identity, resource, live, _propagation(live))

    def _release_owner(
        self, node: Node, resource: ResourceType
    ) -> Generator[Step, list[Outcome], None]:
        """Remove the finalizer of an owner without blocking dependents, or enqueue those."""
        blocking = node.blocking_dependents()
        if not blocking:
            yield from self._remove_finalizer(node.identity, resource, FOREGROUND_FINALIZER)
            return
        yield [Enqueue(tuple(each.key for each in blocking if not each.is_deleting_dependents))]

    def _orphan(self, node: Node) -> Generator[Step, list[Outcome], None]:
        uid = node.identity.uid
        dependents = [
            (each, self._resource(each.identity.api_version, each.identity.kind))
            for each in node.dependents.values()
        ]
        outcomes = yield [
            _strategic(each.identity, resource, _dropped([uid])) for each, resource in dependents
        ]
        for (dependent, resource), outcome in zip(dependents, outcomes, strict=True):
            if outcome.code == _UNSUPPORTED:
                yield from self._merge(dependent.identity, resource, _without([uid]))
            elif not outcome.is_not_found:
                outcome.result()
        resource = self._resource(node.identity.api_version, node.identity.kind)
        yield from self._remove_finalizer(node.identity, resource, ORPHAN_FINALIZER)

    def _complain(self, uid: str, owner_uid: str) -> Generator[Step, list[Outcome], None]:
        node = self._graph.nodes.get(uid)
        if node is None:
            return
        identity = node.identity
        meta = {"namespace": identity.namespace, "name": identity.name, "uid": uid}
        about = {"apiVersion": identity.api_version, "kind": identity.kind, "metadata": meta}
        for owner in node.owners:
            if owner["uid"] == owner_uid:
                claimed = claimed_identity(owner, identity.namespace).event_text()
                text = f'ownerRef {claimed} does not exist in namespace "{identity.namespace}"'
                yield [Record(about, "Warning", "OwnerRefInvalidNamespace", text)]
                return

    # Owners.

    def _sort_out(
        self, identity: Identity, references: Sequence[Object]
    ) -> Generator[Step, list[Outcome], _References]:
        found = _References([], [], [])
        for reference in references:
            owner = yield from self._owner(identity, reference)
            if owner is None:
                found.dangling.append(reference)
                continue
            finalizers = owner["metadata"].get("finalizers") or ()
            if is_deleting(owner) and FOREGROUND_FINALIZER in finalizers:
                found.waiting.append(reference)
            else:
                found.solid.append(reference)
        return found

    def _owner(
        self, identity: Identity, reference: Object
    ) -> Generator[Step, list[Outcome], Object | None]:
        """Return an owner, or None if it is not there."""
        absent = self._graph.absent
        claimed = claimed_identity(reference, identity.namespace)
        if claimed._replace(namespace="") in absent or claimed in absent:
            return None
        resource = self._resource(claimed.api_version, claimed.kind)
        if resource.is_namespaced and not identity.namespace:
            raise _NeverCollectedError
        if (resource.group, resource.name) in self._unread_kinds:
            raise _NeverCollectedError
        _, owner = yield from self._read(claimed)
        if owner is None or owner["metadata"]["uid"] != claimed.uid:
            absent.add(claimed if resource.is_namespaced else claimed._replace(namespace=""))
            return None
        return owner

    # Requests.

    def _read(
        self, identity: Identity
    ) -> Generator[Step, list[Outcome], tuple[ResourceType, Object | None]]:
        resource = self._resource(identity.api_version, identity.kind)
        if resource.is_namespaced and not identity.namespace:
            raise _NeverCollectedError
        [outcome] = yield [
            Get(resource, _namespace(resource, identity), identity.name, metadata_only=True)
        ]
        return resource, None if outcome.is_not_found else outcome.result()

    def _delete(
        self, identity: Identity, resource: ResourceType, live: Object, propagation: str
    ) -> Generator[Step, list[Outcome], None]:
        meta = live["metadata"]
        [outcome] = yield [_deletion(identity, resource, propagation, meta["resourceVersion"])]
        if outcome.is_conflict:
            _, fresh = yield from self._read(identity)
            if fresh is None:
                raise _AbsentError
            now = fresh["metadata"]
            # Only a change of its owners makes what was decided doubtful.
            if (
                now["uid"] == identity.uid
                and now["resourceVersion"] != meta["resourceVersion"]
                and now.get("ownerReferences") == meta.get("ownerReferences")
            ):
                [outcome] = yield [_deletion(identity, resource, propagation, "")]
        if outcome.is_not_found:
            raise _AbsentError
        outcome.result()

    def _drop_references(
        self, node: Node, resource: ResourceType, uids: Sequence[str]
    ) -> Generator[Step, list[Outcome], None]:
        yield from self._patch_references(node, resource, _dropped(uids), _without(uids))

    def _unblock(
        self, node: Node, resource: ResourceType, references: Sequence[Object]
    ) -> Generator[Step, list[Outcome], None]:
        def unblocked(owners: Sequence[Object]) -> list[Object]:
            return [
                {**each, "blockOwnerDeletion": False} if each.get("blockOwnerDeletion") else each
                for each in owners
            ]

        strategic = [each for each in unblocked(references) if each not in references]
        yield from self._patch_references(node, resource, strategic, unblocked)

    def _patch_references(
        self, node: Node, resource: ResourceType, strategic: Sequence[Object], change: _Change
    ) -> Generator[Step, list[Outcome], None]:
        """Change references with the first patch, or with the second where it is unsupported."""
        [outcome] = yield [_strategic(node.identity, resource, strategic)]
        if outcome.code == _UNSUPPORTED:
            yield from self._merge(node.identity, resource, change)
        elif not outcome.is_not_found:
            outcome.result()

    def _merge(
        self, identity: Identity, resource: ResourceType, change: _Change
    ) -> Generator[Step, list[Outcome], None]:
        _, live = yield from self._read(identity)
        if live is None:
            return
        meta = live["metadata"]
        body = {
            "metadata": {
                "resourceVersion": meta["resourceVersion"],
                "ownerReferences": change(meta.get("ownerReferences") or []),
            }
        }
        namespace = _namespace(resource, identity)
        [outcome] = yield [Patch(resource, namespace, identity.name, body, MERGE_PATCH)]
        if not outcome.is_not_found:
            outcome.result()

    def _remove_finalizer(
        self, identity: Identity, resource: ResourceType, finalizer: str
    ) -> Generator[Step, list[Outcome], None]:
        conflict: ApiError | None = None
        for _ in range(_FINALIZER_TRIES):
            _, live = yield from self._read(identity)
            finalizers = [] if live is None else live["metadata"].get("finalizers") or []
            if live is None or finalizer not in finalizers:
                return
            body = {
                "metadata": {
                    "resourceVersion": live["metadata"]["resourceVersion"],
                    "finalizers": [each for each in finalizers if each != finalizer],
                }
            }
            namespace = _namespace(resource, identity)
            try:
                yield from do(Patch(resource, namespace, identity.name, body, MERGE_PATCH))
            except ApiError as error:
                if not error.is_conflict:
                    raise
                conflict = error
            else:
                return
        if conflict is not None:
            raise conflict


def _discovery_keys(old: Object | None, new: Object | None, view: View) -> Sequence[Key]:
    return (Later(_DISCOVERY, _AFTER_DEFINITION_S),)


def _dropped(uids: Sequence[str]) -> list[Object]:
    return [{"$patch": "delete", "uid": uid} for uid in uids]


def _without(uids: Sequence[str]) -> _Change:
    return lambda owners: [each for each in owners if each["uid"] not in uids]


def _strategic(identity: Identity, resource: ResourceType, references: Sequence[Object]) -> Patch:
    """Return a patch of references; the uid keeps it from meeting another object."""
    body = {"metadata": {"ownerReferences": references, "uid": identity.uid}}
    namespace = _namespace(resource, identity)
    return Patch(resource, namespace, identity.name, body, STRATEGIC_MERGE_PATCH)


def _namespace(resource: ResourceType, identity: Identity) -> str:
    return identity.namespace if resource.is_namespaced else ""


def _propagation(obj: Object) -> str:
    """Return how an object is deleted: as finalizers that it has already say."""
    finalizers = obj["metadata"].get("finalizers") or ()
    if ORPHAN_FINALIZER in finalizers:
        return "Orphan"
    return "Foreground" if FOREGROUND_FINALIZER in finalizers else "Background"


def _deletion(
    identity: Identity, resource: ResourceType, propagation: str, resource_version: str
) -> Delete:
    return Delete(
        resource,
        _namespace(resource, identity),
        identity.name,
        uid=identity.uid,
        resource_version=resource_version,
        propagation=propagation,
    )
