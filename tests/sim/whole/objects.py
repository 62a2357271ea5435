"""All objects as the store has them, and whoever wants to hear of each change, in order."""

from collections import defaultdict
from typing import TYPE_CHECKING, Final, NamedTuple

import orjson

from kvstack.apimachinery.objects.json_object import Object
from kvstore.client.store import Store
from kvstore.client.values import EventKind, Events
from tests.sim.violation import demand

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable


PREFIX: Final = b"/registry/"
FOLLOWED: Final = frozenset(
    (
        "controllerrevisions", "daemonsets", "deployments", "jobs", "leases", "minions",
        "namespaces", "poddisruptionbudgets", "pods", "replicasets", "services/endpoints",
        "services/specs", "statefulsets", "endpointslices", "cronjobs",
    )
)  # fmt: skip
"""As the store's keys name resources."""


class Change(NamedTuple):
    """One change of one object; None: it was, or is, not there."""

    resource: str
    key: str
    revision: int
    old: Object | None
    new: Object | None


class Objects:
    """The objects of the resources that are followed."""

    def __init__(self) -> None:
        self.revision = 0
        self.of: Final[defaultdict[str, dict[str, Object]]] = defaultdict(dict)
        """By resource and key."""
        self.by_uid: Final[dict[str, Object]] = {}
        self.on_change: Final[list[Callable[[Change], None]]] = []
        self.changed = 0

    async def follow(self, store: Store) -> None:
        """Take all changes until cancelled."""
        async with store.watch(PREFIX, PREFIX[:-1] + b"0", start_revision=1) as watch:
            async for value in watch:
                if isinstance(value, Events):
                    for event in value.events:
                        gone = event.kind == EventKind.DELETE
                        self._take(
                            event.kv.key.decode(),
                            event.kv.mod_revision,
                            b"" if gone else event.kv.value,
                        )
                else:
                    name = type(value).__name__
                    known = ("Started", "Progress", "Interrupted", "Resumed")
                    demand(name in known, "the observer lost", value)

    def _take(self, path: str, revision: int, value: bytes) -> None:
        self.revision = revision
        resource, _, key = path.removeprefix("/registry/").partition("/")
        if resource == "services":
            kind, _, key = key.partition("/")
            resource = f"services/{kind}"
        if resource not in FOLLOWED:
            return
        found = self.of[resource]
        old = found.get(key)
        new = orjson.loads(value) if value else None
        if old is not None:
            self.by_uid.pop(old["metadata"]["uid"], None)
        if new is None:
            found.pop(key, None)
        else:
            found[key] = new
            self.by_uid[new["metadata"]["uid"]] = new
        self.changed += 1
        change = Change(resource, key, revision, old, new)
        for each in self.on_change:
            each(change)

    def all(self, resource: str) -> list[Object]:
        """Return the objects of a resource."""
        return list(self.of[resource].values())

    def owned(self, resource: str, uid: str) -> list[Object]:
        """Return the objects that a controller owns."""
        return [each for each in self.of[resource].values() if controller_of(each) == uid]


def controller_of(obj: Object) -> str:
    """Return the uid of the owner that controls an object; empty: none."""
    owners: Iterable[Object] = obj["metadata"].get("ownerReferences") or ()
    return next((each["uid"] for each in owners if each.get("controller")), "")


def is_ready(pod: Object) -> bool:
    """Whether a pod says that it is ready."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def is_ended(pod: Object) -> bool:
    """Whether a pod has run to its end."""
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def is_terminating(obj: Object) -> bool:
    """Whether an object is being deleted."""
    return "deletionTimestamp" in obj["metadata"]
