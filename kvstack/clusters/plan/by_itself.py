"""What would have come without the change, too, and is told apart from what follows from it.

    parted = part(compare(before, after), compare(before, unchanged))
    parted.followed     what is different because of the change
    parted.came         what came by itself: the Job of a CronJob that was due
    parted.prevented    what does not come any more

`unchanged` is how a second fork of the same contents is after the same time, in which nobody
changed anything. Objects whose names are made up are the same if their owners are.
"""

from collections import Counter
from dataclasses import replace
from typing import Final, NamedTuple, TypeAlias

from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.json_object import Object
from kvstack.clusters.comparison.comparison import Change, Comparison, Difference

Key: TypeAlias = tuple[object, ...]

_OF_STATUS: Final = ("status",)


class Parted(NamedTuple):
    """Differences, by why they came."""

    followed: Comparison
    came: list[Difference]
    prevented: list[Difference]

    @property
    def came_paths(self) -> frozenset[tuple[GroupResource, str]]:
        """The objects that came by themselves."""
        return frozenset((each.resource, each.path) for each in self.came)


def part(found: Comparison, unchanged: Comparison) -> Parted:
    """Return what came because of a change, and what would have come without it."""
    expected = Counter(_key(each) for each in unchanged.differences)
    followed, came = [], []
    for each in found.differences:
        key = _key(each)
        if expected[key]:
            expected[key] -= 1
            came.append(each)
        else:
            followed.append(each)
    prevented = []
    for each in unchanged.differences:
        key = _key(each)
        if expected[key] and each.change is not Change.CHANGED:
            expected[key] -= 1
            prevented.append(each)
    return Parted(replace(found, differences=followed), came, prevented)


def _key(difference: Difference) -> Key:
    """Return what is the same of a difference in two forks."""
    obj = difference.after or difference.before or {}
    name, owner = _name_of(obj, difference.name)
    key = difference.change, difference.resource, difference.namespace, name, owner
    if difference.change is not Change.CHANGED:
        return key
    # What a status says has uids and moments in it, which differ from fork to fork.
    deep = sorted(
        (each.path, repr(each.after))
        for each in difference.fields
        if each.path[:1] != _OF_STATUS and not _is_of_owner(each.path)
    )
    return *key, *deep


def _name_of(obj: Object, name: str) -> tuple[str, str]:
    """Return the name, or how it begins if the rest is made up, and who owns the object."""
    meta = obj.get("metadata") or {}
    prefix = meta.get("generateName") or ""
    owners = [
        f"{each.get('kind')}/{each.get('name')}" for each in meta.get("ownerReferences") or ()
    ]
    is_made_up = prefix and name.startswith(prefix)
    return (prefix if is_made_up else name), ",".join(sorted(owners))


def _is_of_owner(path: tuple[str, ...]) -> bool:
    return path[:2] == ("metadata", "ownerReferences")
