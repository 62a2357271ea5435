"""Conversion of resource.k8s.io/v1beta1 claims, templates and slices, which are handled as v1.

    v1beta1  requests: [{name: a, deviceClassName: c, count: 1}]
    v1       requests: [{name: a, exactly: {deviceClassName: c, count: 1}}]

    v1beta1  devices: [{name: d, basic: {attributes: …, capacity: …}}]
    v1       devices: [{name: d, attributes: …, capacity: …}]

Nothing is lost either way. The arguments are not changed; what is the same in both versions is
shared with the result. v1beta2 has the fields of v1.
"""

from collections.abc import Callable
from typing import Final

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apiserver.kinds.strategy import Conversion

_V1: Final = "resource.k8s.io/v1"
_V1BETA1: Final = "resource.k8s.io/v1beta1"
_NOT_OF_EXACTLY: Final = frozenset(("name", "exactly", "firstAvailable"))
_Item = Callable[[Object], Object]


def _request_to_v1(request: Object) -> Object:
    own = {name: value for name, value in request.items() if name not in _NOT_OF_EXACTLY}
    if all(map(_is_zero, own.values())):
        return {name: value for name, value in request.items() if name not in own}
    return {**{n: v for n, v in request.items() if n not in own}, "exactly": own}


def _is_zero(value: object) -> bool:
    """Return whether a field counts as unset; False is a value of `adminAccess`."""
    return value is None or value == "" or (value == 0 and not isinstance(value, bool))


def _request_to_v1beta1(request: Object) -> Object:
    exactly = request.get("exactly")
    if exactly is None:
        return request
    return {**{n: v for n, v in request.items() if n != "exactly"}, **exactly}


def _device_to_v1(device: Object) -> Object:
    basic = device.get("basic")
    rest = {name: value for name, value in device.items() if name != "basic"}
    return {**rest, **(basic or {})}


def _device_to_v1beta1(device: Object) -> Object:
    basic = {name: value for name, value in device.items() if name != "name"}
    return {**{n: v for n, v in device.items() if n == "name"}, "basic": basic}


def _with_items(obj: Object, path: tuple[str, ...], convert: _Item) -> Object:
    """Return an object with the items of the list at a path converted."""
    inner = obj.get(path[0])
    if not inner:
        return obj
    if len(path) == 1:
        return {**obj, path[0]: [convert(each) for each in inner]}
    return {**obj, path[0]: _with_items(inner, path[1:], convert)}


def _conversion(path: tuple[str, ...], to_v1: _Item, to_v1beta1: _Item) -> Conversion:
    def to_stored(obj: Object) -> Object:
        return {**_with_items(obj, path, to_v1), "apiVersion": _V1}

    def to_served(obj: Object) -> Object:
        return {**_with_items(obj, path, to_v1beta1), "apiVersion": _V1BETA1}

    return Conversion(to_stored=to_stored, to_served=to_served)


CLAIM: Final = _conversion(("spec", "devices", "requests"), _request_to_v1, _request_to_v1beta1)
TEMPLATE: Final = _conversion(
    ("spec", "spec", "devices", "requests"), _request_to_v1, _request_to_v1beta1
)
SLICE: Final = _conversion(("spec", "devices"), _device_to_v1, _device_to_v1beta1)
