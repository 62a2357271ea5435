"""Structural sharing: equal parts of objects are stored once.

    share(pod, another_of_the_same_template)

Objects of informers are never changed, so that several may have parts in common: the states of one
object before and after a change, and the pods of one workload, of which little differs but names.
A member must have one type in all of them: 1 equals true here. Metadata have that in all objects.
"""

from typing import Any, Final

from kvstack.apimachinery.objects.json_object import Object

DEEP: Final = 8
SHALLOW: Final = 1
"""The depth for an object before and after a change, of which whole parts are equal."""
SMALL: Final = 8
"""Members up to which a dict is as small as it can be."""
_TYPE: Final = ("kind", "apiVersion")


def share(obj: Object, like: Object, depth: int = DEEP) -> None:
    """Replace parts of an object, which has no other user yet, by equal parts of `like`."""
    for key, value in obj.items():
        known = like.get(key)
        if known is None or known is value or type(known) is not type(value):
            continue
        if value == known:
            obj[key] = known
        elif depth:
            if type(value) is dict:
                share(value, known, depth - 1)
            elif type(value) is list:
                _share_items(value, known, depth - 1)


def share_metadata(obj: Object, like: Object) -> None:
    """Share the metadata of any two objects of one resource, and their kind and version."""
    share(obj["metadata"], like["metadata"])
    for name in _TYPE:
        if name in obj and obj[name] == like.get(name):
            obj[name] = like[name]


def compact(obj: Object) -> None:
    """Make the larger parts of an object that has no other user yet take less memory.

    orjson makes dicts for the number of their members; those of more than SMALL use entries of 24
    bytes, while one that grew by itself, with text as keys, uses 16.
    """
    for name, value in obj.items():
        if type(value) is dict and len(value) > SMALL:
            obj[name] = {key: item for key, item in value.items()}  # noqa: C416 - grows


def share_status(obj: Object, old: Object, like: Object) -> None:
    """Share the status of an object that has changed with that of another.

    Of one object before and after such a change little is equal; of pods that began in the same
    second most conditions are.
    """
    status, known = obj.get("status"), like.get("status")
    if type(status) is dict and type(known) is dict and status is not old.get("status"):
        share(status, known)


def _share_items(items: list[Any], like: list[Any], depth: int) -> None:
    for position, (value, known) in enumerate(zip(items, like, strict=False)):
        if type(value) is not type(known):
            continue
        if value == known:
            items[position] = known
        elif depth and type(value) is dict:
            share(value, known, depth - 1)
