"""Which objects belong to an owner: adoption and release, as upstream's ControllerRefManager.

    pods = yield from claim(Claim(PODS, REPLICA_SETS, replica_set, selector), candidates)

An object of the owner that its selector no longer matches is released, one without a controller and
that it matches is adopted. Before the first adoption the owner is read from the server: one that is
gone or going takes nothing. The uid in each patch keeps it from meeting another object.
"""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from kvstack.agents.client.object_store import key_of
from kvstack.agents.client.resource_type import ResourceType
from kvstack.agents.reconcile.plan import ForeseenError, Get, Outcome, Patch, Step, View, do
from kvstack.apimachinery.objects import labels
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.labels import Selector
from kvstack.apimachinery.schema.resource import STRATEGIC_MERGE_PATCH

CONTROLLER_INDEX: Final = "controller"
"""The index of dependents: by the uid of their controller, those without one by namespace."""

_RELEASE_IGNORED: Final = frozenset((HTTPStatus.NOT_FOUND, HTTPStatus.UNPROCESSABLE_ENTITY))


class OwnerGoneError(ForeseenError):
    """The owner was deleted since it was last seen."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The dependents that an owner may claim."""

    resource: ResourceType
    """The resource of the dependents."""
    owner_resource: ResourceType
    owner: Object
    selector: Selector
    finalizers: tuple[str, ...] = ()
    """Added on adoption, removed on release."""


def controller_of(obj: Object) -> Object | None:
    """Return the owner reference that is the controller."""
    for reference in obj["metadata"].get("ownerReferences") or ():
        if reference.get("controller"):
            found: Object = reference
            return found
    return None


def controller_values(obj: Object) -> tuple[str, ...]:
    """Return what CONTROLLER_INDEX has an object under."""
    reference = controller_of(obj)
    if reference is not None:
        return (reference["uid"],)
    return (f"orphan/{obj['metadata'].get('namespace', '')}",)


def orphans_value(namespace: str) -> str:
    """Return the key of CONTROLLER_INDEX for the objects of a namespace without a controller."""
    return f"orphan/{namespace}"


def controller_reference(owner: Object) -> Object:
    """Return the owner reference of a controller."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def owner_keys(obj: Object, api_group: str, kind: str) -> tuple[str, ...]:
    """Return the key of an object's controller, if that is of a kind."""
    reference = controller_of(obj)
    if reference is None or reference["kind"] != kind:
        return ()
    group = reference["apiVersion"].rpartition("/")[0]
    if group != api_group:
        return ()
    namespace = obj["metadata"].get("namespace")
    return (f"{namespace}/{reference['name']}" if namespace else reference["name"],)


def is_deleting(obj: Object) -> bool:
    """Whether an object was deleted and waits for its finalizers or its grace."""
    return bool(obj["metadata"].get("deletionTimestamp"))


def own_key(old: Object | None, new: Object | None, view: View) -> Iterable[str]:
    """Return the key of what changed."""
    yield key_of(new or old or {})


def no_keys(old: Object | None, new: Object | None, view: View) -> Iterable[str]:
    """Give none: all objects are looked at from time to time."""
    return ()


def label_selector(owner: Object) -> Selector:
    """Return the selector of an owner's spec; raises SelectorError."""
    return labels.from_object(owner["spec"].get("selector"))


class SharedLabels:
    """Tests labels of many objects, each different map of labels once.

    Objects of one template have one map in common (`client.structural_sharing`). What is tested
    must live as long as this.
    """

    def __init__(self, test: Callable[[Mapping[str, str]], bool]) -> None:
        """test: of labels."""
        self._test = test
        self._known: dict[int, bool] = {}

    def __call__(self, obj: Object) -> bool:
        """Return what the test says of an object's labels."""
        own = obj["metadata"].get("labels")
        if not own:
            return self._test({})
        found = self._known.get(id(own))
        if found is None:
            found = self._known[id(own)] = self._test(own)
        return found


class OwnerKeys:
    """Maps a change of a dependent to owners of one kind: its controller, or possible adopters."""

    def __init__(
        self, resource: ResourceType, selector_of: Callable[[Object], Selector] = label_selector
    ) -> None:
        """resource: of the owners; selector_of: raises SelectorError where there is none."""
        self._resource = resource
        self._selector_of = selector_of

    def __call__(self, old: Object | None, new: Object | None, view: View) -> Iterable[str]:
        """Return the keys of the owners."""
        seen: set[str] = set()
        for obj in (old, new):
            if obj is None:
                continue
            if controller_of(obj) is not None:
                seen.update(owner_keys(obj, self._resource.group, self._resource.kind))
            elif obj is new and not is_deleting(obj) and not _is_same_orphan(old, new):
                seen.update(self._adopters(obj, view))
        return seen

    def _adopters(self, obj: Object, view: View) -> Iterable[str]:
        meta = obj["metadata"]
        for owner in view.list(self._resource, meta["namespace"]):
            try:
                matches = self._selector_of(owner).matches(meta.get("labels") or {})
            except labels.SelectorError:
                continue  # its own sync says so
            if matches:
                yield key_of(owner)


def _is_same_orphan(old: Object | None, new: Object) -> bool:
    """Whether an orphan was one before, with the same labels.

    A controller that did not adopt it then does not adopt it now.
    """
    return (
        old is not None
        and controller_of(old) is None
        and old["metadata"].get("labels") == new["metadata"].get("labels")
    )


def claim(
    what: Claim, candidates: Iterable[Object]
) -> Generator[Step, list[Outcome], list[Object]]:
    """Return the owner's objects among the candidates, after adoptions and releases."""
    uid, is_leaving = what.owner["metadata"]["uid"], is_deleting(what.owner)
    mine: list[Object] = []
    adopted: list[Object] = []
    released: list[Object] = []
    matching = SharedLabels(what.selector.matches)
    for obj in candidates:
        reference = controller_of(obj)
        if reference is not None:
            if reference["uid"] != uid:
                continue
            if matching(obj):
                mine.append(obj)
            elif not is_leaving:
                released.append(obj)
        elif not is_leaving and matching(obj) and not is_deleting(obj):
            adopted.append(obj)
    if released:
        yield from _release(what, released)
    if adopted:
        mine += yield from _adopt(what, adopted)
    return mine


def _adopt(what: Claim, objects: Sequence[Object]) -> Generator[Step, list[Outcome], list[Object]]:
    meta = what.owner["metadata"]
    fresh = yield from do(Get(what.owner_resource, meta.get("namespace", ""), meta["name"]))
    if fresh["metadata"]["uid"] != meta["uid"]:
        raise OwnerGoneError(
            f"original {what.owner['kind']} {key_of(what.owner)} is gone: got uid"
            f" {fresh['metadata']['uid']}, wanted {meta['uid']}"
        )
    if is_deleting(fresh):
        raise OwnerGoneError(
            f"{key_of(what.owner)} has just been deleted at"
            f" {fresh['metadata']['deletionTimestamp']}"
        )
    reference = controller_reference(what.owner)
    outcomes = yield [
        _patch(
            what,
            obj,
            {
                "ownerReferences": [reference],
                "uid": obj["metadata"]["uid"],
                **({"finalizers": list(what.finalizers)} if what.finalizers else {}),
            },
        )
        for obj in objects
    ]
    return [outcome.result() for outcome in outcomes if not outcome.is_not_found]


def _release(what: Claim, objects: Sequence[Object]) -> Generator[Step, list[Outcome], None]:
    uid = what.owner["metadata"]["uid"]
    outcomes = yield [
        _patch(
            what,
            obj,
            {
                "uid": obj["metadata"]["uid"],
                "ownerReferences": [{"$patch": "delete", "uid": uid}],
                **(
                    {"$deleteFromPrimitiveList/finalizers": list(what.finalizers)}
                    if what.finalizers
                    else {}
                ),
            },
        )
        for obj in objects
    ]
    for outcome in outcomes:
        if outcome.error is not None and outcome.code not in _RELEASE_IGNORED:
            raise outcome.error


def _patch(what: Claim, obj: Object, metadata: Object) -> Patch:
    meta = obj["metadata"]
    return Patch(
        what.resource,
        meta.get("namespace", ""),
        meta["name"],
        {"metadata": metadata},
        STRATEGIC_MERGE_PATCH,
    )
