"""Carries plans out in memory: objects in stores, no server.

world = World(REPLICA_SETS, PODS)
world.add(PODS, pod)
world.run(controller, "default/web")       → the actions, done at once
world.events                               → [("Normal", "SuccessfulCreate", …), …]
"""

from typing import TYPE_CHECKING, Any

from kvstack.agents.client.object_store import ObjectStore, key_of
from kvstack.agents.client.resource_type import ResourceType
from kvstack.agents.reconcile.plan import (
    Action,
    Again,
    Controller,
    Create,
    Delete,
    Get,
    Outcome,
    Patch,
    Record,
    Retry,
    SlowStart,
    Update,
)
from kvstack.agents.reconcile.store_view import StoreView
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.status import ApiError

if TYPE_CHECKING:
    from collections.abc import Callable

START_S = 1_800_000_000.0


def refusal(code: int, message: str = "refused", **details: Any) -> ApiError:
    """Return the refusal of a request."""
    status: Object = {"kind": "Status", "code": code, "message": message}
    if details:
        status["details"] = details
    return ApiError(status)


class World:
    """Objects, and what was done to them."""

    def __init__(self, *resources: ResourceType) -> None:
        self._stores = {resource: ObjectStore() for resource in resources}
        self.view = StoreView(self._stores)
        self.now_s = START_S
        self.events: list[tuple[str, str, str]] = []
        self.refuse: Callable[[Action], ApiError | None] = lambda _action: None
        self._version = 0

    def index(self, controller: Controller) -> None:
        """Make the indexes that a controller looks into."""
        for each in controller.indexes:
            self._stores[each.resource].add_index(each.name, each.values_of)

    def add(self, resource: ResourceType, obj: Object) -> Object:
        """Add an object as the server would make it."""
        self._version += 1
        meta = {"namespace": "default", **obj["metadata"]}
        if not resource.is_namespaced:
            meta.pop("namespace")
        if not meta.get("name"):
            meta["name"] = f"{meta['generateName']}{self._version:05}"
        meta.setdefault("uid", f"uid-{self._version:05}")
        meta.setdefault("creationTimestamp", "2027-01-15T08:00:00Z")
        meta.setdefault("generation", 1)
        made = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            **obj,
            "metadata": {**meta, "resourceVersion": str(self._version)},
        }
        if resource.kind == "Pod":
            made.setdefault("status", {"phase": "Pending"})
        self._stores[resource].set(made)
        return made

    def get(self, resource: ResourceType, name: str) -> Object:
        """Return an object of the namespace `default`, or of none."""
        found = self._stores[resource].get(f"default/{name}" if resource.is_namespaced else name)
        assert found is not None, name
        return found

    def names(self, resource: ResourceType) -> list[str]:
        """Return the names of all objects."""
        return sorted(each["metadata"]["name"] for each in self._stores[resource])

    def change(self, resource: ResourceType, name: str, **parts: Any) -> Object:
        """Replace parts of an object, as a user or a kubelet does."""
        obj = {**self.get(resource, name), **parts}
        self._version += 1
        obj["metadata"] = {**obj["metadata"], "resourceVersion": str(self._version)}
        if "spec" in parts:
            obj["metadata"]["generation"] += 1
        self._stores[resource].set(obj)
        return obj

    def remove(self, resource: ResourceType, name: str) -> None:
        """Remove an object."""
        self._stores[resource].remove(key_of(self.get(resource, name)))

    def run(self, controller: Controller, key: str) -> tuple[list[Action], Again | Retry | None]:
        """Carry one plan out; return its writes, and what it returns; raises what it raises."""
        self.index(controller)
        plan = controller.reconcile(key, self.view, self.now_s)
        done: list[Action] = []
        outcomes: list[Outcome] = []
        step = None
        try:
            while True:
                step = next(plan) if step is None else plan.send(outcomes)
                actions = step.actions if isinstance(step, SlowStart) else step
                outcomes = [self._carry_out(action) for action in actions]
                done += [each for each in actions if not isinstance(each, Record | Get)]
        except StopIteration as end:
            again: Again | Retry | None = end.value
            return done, again

    def settle(self, controller: Controller, key: str, *, rounds: int = 30) -> None:
        """Carry plans out until they do nothing."""
        for _ in range(rounds):
            done, _again = self.run(controller, key)
            if not done:
                return
        raise AssertionError(f"{key} never settles: {done}")

    def _carry_out(self, action: Action) -> Outcome:
        if isinstance(action, Record):
            self.events.append((action.type, action.reason, action.message))
            return Outcome(action)
        error = self.refuse(action)
        if error is not None:
            return Outcome(action, error=error)
        try:
            return Outcome(action, self._done(action))
        except KeyError:
            return Outcome(action, error=refusal(404, "not found"))
        except ApiError as known:
            return Outcome(action, error=known)

    def _done(self, action: Action) -> Object:
        match action:
            case Create(resource, namespace, obj):
                name = obj["metadata"].get("name")
                if name and self._stores[resource].get(f"{namespace}/{name}") is not None:
                    raise refusal(409, "already exists")
                return self.add(resource, obj)
            case Update(resource, obj, subresource):
                return self._replaced(resource, obj, subresource)
            case Patch():
                return self._patched(action)
            case Delete(resource, namespace, name):
                return self._deleted(resource, f"{namespace}/{name}" if namespace else name)
            case Get(resource, namespace, name):
                found = self._stores[resource].get(f"{namespace}/{name}" if namespace else name)
                if found is None:
                    raise KeyError(name)
                return found
        raise AssertionError(f"not carried out here: {action}")

    def _replaced(self, resource: ResourceType, obj: Object, subresource: str) -> Object:
        store = self._stores[resource]
        before = store.get(key_of(obj))
        if before is None:
            raise KeyError(key_of(obj))
        if before["metadata"]["resourceVersion"] != obj["metadata"]["resourceVersion"]:
            raise refusal(409, "conflict")
        self._version += 1
        meta = {**obj["metadata"], "resourceVersion": str(self._version)}
        if subresource == "status":
            after = {**before, "status": obj["status"], "metadata": meta}
        else:
            if obj.get("spec") != before.get("spec"):
                meta["generation"] = meta.get("generation", 1) + 1
            after = {**obj, "metadata": meta}
            if "status" in before:
                after["status"] = before["status"]
        store.set(after)
        return after

    def _patched(self, action: Patch) -> Object:
        store = self._stores[action.resource]
        before = store.get(f"{action.namespace}/{action.name}")
        if before is None:
            raise KeyError(action.name)
        assert isinstance(action.body, dict)
        self._version += 1
        meta = {**before["metadata"], "resourceVersion": str(self._version)}
        for name, value in action.body["metadata"].items():
            if name == "$deleteFromPrimitiveList/finalizers":
                meta["finalizers"] = [x for x in meta.get("finalizers") or () if x not in value]
            elif name == "labels":
                meta["labels"] = {**(meta.get("labels") or {}), **value}
            elif name == "ownerReferences":
                gone = {each["uid"] for each in value if each.get("$patch") == "delete"}
                kept = [x for x in meta.get(name) or () if x["uid"] not in gone]
                meta[name] = kept + [x for x in value if "$patch" not in x]
            elif name == "finalizers":
                meta[name] = [*(meta.get(name) or ()), *value]
        after = {**before, "metadata": meta}
        if meta.get("deletionTimestamp") and not meta.get("finalizers"):
            store.remove(key_of(before))
        else:
            store.set(after)
        return after

    def _deleted(self, resource: ResourceType, key: str) -> Object:
        store = self._stores[resource]
        before = store.get(key)
        if before is None:
            raise KeyError(key)
        if before["metadata"].get("finalizers"):
            meta = {**before["metadata"], "deletionTimestamp": "2027-01-15T08:00:00Z"}
            store.set({**before, "metadata": meta})
        else:
            store.remove(key)
        return before
