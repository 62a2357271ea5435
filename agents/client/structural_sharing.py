"""Structural sharing: equal parts of objects are stored once.

    share(pod, another_of_the_same_template)

Objects of informers are never changed, so that several may have parts in common: the states of one
object before and after a change, and the pods of one workload, of which little differs but names.
A member must have one type in all of them: 1 equals true here.
"""

from typing import Any, Final

from kvstack.apimachinery.objects.json_object import Object

DEEP: Final = 8
SHALLOW: Final = 1
"""The depth for an object before and after a change, of which whole parts are equal."""


def share(obj: Object, like: Object, depth: int = DEEP) -> None:
    """Replace parts of an object, which has no other user yet, by equal parts of `like`."""
    for key, value in obj.items():
        known = like.get(key)
        if known is None or type(known) is not type(value):
            continue
        if value == known:
            obj[key] = known
        elif depth:
            if type(value) is dict:
                share(value, known, depth - 1)
            elif type(value) is list:
                _share_items(value, known, depth - 1)


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
