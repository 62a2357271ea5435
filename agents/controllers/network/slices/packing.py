"""Packs endpoints into slices with few changes, and without rebalancing.

    changes = packed(slices, wanted, limit, make)

Slices keep the endpoints that are still wanted. New ones go first into slices that change anyway,
the fullest first; then into new slices as far as they fill them; the rest into the slice that comes
closest to being full, or into a new one. Slices with nothing left are deleted.

Endpoints are the same if addresses, host name and pod are; what else differs is refreshed.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from kvstack.apimachinery.objects.json_object import Object

Key: TypeAlias = tuple[object, ...]


@dataclass(slots=True)
class Changes:
    """Changes to slices."""

    create: list[Object] = field(default_factory=list)
    update: list[Object] = field(default_factory=list)
    delete: list[Object] = field(default_factory=list)

    def add(self, other: "Changes") -> None:
        """Add other changes."""
        self.create += other.create
        self.update += other.update
        self.delete += other.delete

    def recycle(self, may_become: Callable[[Object], bool]) -> None:
        """Turn deletions into updates to what would be created, where types are the same."""
        remaining: list[Object] = []
        for old in self.delete:
            new = self.create[-1] if self.create else None
            if new is None or old["addressType"] != new["addressType"] or not may_become(old):
                remaining.append(old)
                continue
            self.create.pop()
            self.update.append(renamed(new, old))
        self.delete = remaining

    def unchanged(self, slices: Iterable[Object]) -> list[Object]:
        """Return those of the slices that nothing is done with."""
        names = {each["metadata"]["name"] for each in (*self.update, *self.delete)}
        return [each for each in slices if each["metadata"]["name"] not in names]


def renamed(new: Object, old: Object) -> Object:
    """Return a new slice in place of an old one."""
    meta = {**new["metadata"], "name": old["metadata"]["name"]}
    return {**new, "metadata": meta}


def key_of_endpoint(endpoint: Object) -> Key:
    """Return the key that identifies an endpoint."""
    target = endpoint.get("targetRef") or {}
    return (
        tuple(sorted(endpoint["addresses"])),
        endpoint.get("hostname") or "",
        target.get("namespace", ""),
        target.get("name", ""),
    )


def is_as(left: Object, right: Object) -> bool:
    """Whether two endpoints of one key are the same, except for hints and the pod's version."""
    return _rest(left) == _rest(right)


def _rest(endpoint: Object) -> Key:
    target = dict(endpoint.get("targetRef") or {})
    target.pop("resourceVersion", None)
    conditions = endpoint.get("conditions") or {}
    return (
        endpoint.get("nodeName"),
        endpoint.get("zone"),
        *(conditions.get(name) for name in ("ready", "serving", "terminating")),
        target,
    )


def packed(
    slices: Sequence[Object],
    desired: dict[Key, Object],
    limit: int,
    make: Callable[[], Object],
    relabelled: Callable[[Object], Object | None],
) -> Changes:
    """Return the changes that bring wanted endpoints into slices of the same ports.

    limit: endpoints of a slice; make: returns a new slice without endpoints; relabelled: returns a
    slice with the right labels, or None if it has them.
    """
    rest = dict(desired)
    changed: list[Object] = []
    unchanged: list[Object] = []
    changes = Changes()
    for each in slices:
        kept, is_changed = _refreshed(each, rest)
        labelled = relabelled(each)
        if is_changed and not kept:
            changes.delete.append(each)
        elif is_changed or labelled is not None:
            changed.append({**(labelled or each), "endpoints": kept})
        else:
            unchanged.append(each)
    left = list(rest.values())
    for each in sorted(changed, key=lambda found: -len(found["endpoints"])):
        room = limit - len(each["endpoints"])
        if room > 0:
            each["endpoints"] = [*each["endpoints"], *left[:room]]
            left = left[room:]
    while left:
        target = _closest(unchanged, len(left), limit) if len(left) < limit else None
        if target is None:
            changes.create.append({**make(), "endpoints": left[:limit]})
            left = left[limit:]
        else:
            unchanged.remove(target)
            changed.append({**target, "endpoints": [*(target.get("endpoints") or ()), *left]})
            left = []
    changes.update = changed
    return changes


def _refreshed(endpoint_slice: Object, rest: dict[Key, Object]) -> tuple[list[Object], bool]:
    """Return the endpoints of a slice that are still wanted, and whether anything changes.

    They are taken out of the rest. They have no hints: others decide on these afterwards.
    """
    remaining: list[Object] = []
    is_changed = False
    for endpoint in endpoint_slice.get("endpoints") or ():
        new = rest.pop(key_of_endpoint(endpoint), None)
        if new is None:
            is_changed = True
            continue
        remaining.append(new)
        is_changed = is_changed or not is_as(new, endpoint)
    return remaining, is_changed


def _closest(slices: Iterable[Object], count: int, limit: int) -> Object | None:
    """Return the slice that endpoints fill best."""
    best: Object | None = None
    best_room = limit
    for each in slices:
        room = limit - count - len(each.get("endpoints") or ())
        if 0 <= room < best_room:
            best, best_room = each, room
    return best
