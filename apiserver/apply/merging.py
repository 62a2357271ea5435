"""Merging of a configuration into a live value.

    live               a b c      b d          x a y b
    configuration      c a        z d y b      b n a
    merged             b c a      z d y b      x y b n a

Leaves of the configuration win, including null; an empty map or list does not clear one that has
members. Items of both are in the order of the configuration. Items of the live list alone keep
their position before the next shared item, new ones are inserted right before the next one.

Parts that only one side has are shared with the result, so it must not be changed in place below
its first level.
"""

from collections.abc import Iterator

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.schema.types import Type
from kvstack.apiserver.apply.everything import items_by_element
from kvstack.apiserver.apply.structure import (
    UNKNOWN,
    Json,
    is_associative,
    is_granular,
    item_element,
    item_type,
    member_type,
)


def merge(live: Object, config: Object, type_: Type) -> Object:
    """Return the configuration merged into a live value of a granular type.

    The configuration must not have duplicate items. Raises ItemError.
    """
    merged = dict(live)
    for name, value in config.items():
        if name in live:
            merged[name] = _merged(live[name], value, member_type(type_, name) or UNKNOWN)
        else:
            merged[name] = value
    return merged


def _merged(live: Json, config: Json, type_: Type) -> Json:
    if live and isinstance(live, dict) and is_granular(type_):
        if config is None or config == {}:
            return live
        if isinstance(config, dict):
            return merge(live, config, type_)
    elif live and isinstance(live, list) and is_associative(type_):
        if config is None or config == []:
            return live
        if isinstance(config, list):
            return list(_merged_items(live, config, type_))
    return config


def _merged_items(live: list[Json], config: list[Json], type_: Type) -> Iterator[Json]:
    items = item_type(type_)
    old = items_by_element(live, type_)
    old_elements = (
        [item_element(item, type_) for item in live] if len(old) < len(live) else list(old)
    )
    new = {item_element(item, type_): item for item in config}
    order = list(new)
    shared = [element for element in order if element in old]
    shared.reverse()
    done: set[str] = set()

    def take_new() -> Json:
        element = order[len(done)]
        done.add(element)
        if shared and shared[-1] == element:
            shared.pop()
        # Nothing of a duplicate item is kept.
        olds = old.get(element, ())
        return _merged(olds[0], new[element], items) if len(olds) == 1 else new[element]

    for element, item in zip(old_elements, live, strict=True):
        if element not in new:
            yield item
        elif shared and shared[-1] == element:
            while shared and shared[-1] == element:
                yield take_new()
        elif not shared and len(done) < len(order):
            yield take_new()
    while len(done) < len(order):
        yield take_new()
