"""The coroutine of each verb of an endpoint."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeAlias

from kvstack.apiserver.verbs import reviews
from kvstack.apiserver.verbs.call import Call
from kvstack.apiserver.verbs.deletion import delete
from kvstack.apiserver.verbs.deletion.deletecollection import delete_collection
from kvstack.apiserver.verbs.reading import computed_objects, get_and_list, watch
from kvstack.apiserver.verbs.results import Result
from kvstack.apiserver.verbs.subresources import binding, connect, eviction, scale
from kvstack.apiserver.verbs.writing import create, patch, update

Verb: TypeAlias = Callable[[Call], Awaitable[Result]]

_CREATES: Final[dict[tuple[str, str], Verb]] = {
    ("pods", "binding"): binding.create,
    ("bindings", ""): binding.create,
    ("pods", "eviction"): eviction.create,
}
"""Creates in the core group that are subresource actions."""


async def _create(call: Call) -> Result:
    endpoint = call.endpoint
    own = None
    if not endpoint.resource.group:
        own = _CREATES.get((endpoint.resource.resource, endpoint.subresource))
    if own is not None:
        return await own(call)
    if endpoint.subresource or endpoint.collection is None:
        return await reviews.create(call)
    return await create.create(call)


def _get(call: Call) -> Awaitable[Result]:
    if call.endpoint.subresource == "scale":
        return scale.get(call)
    if call.endpoint.collection is None:
        return computed_objects.get(call)
    return get_and_list.get(call)


def _list(call: Call) -> Awaitable[Result]:
    if call.endpoint.collection is None:
        return computed_objects.list_objects(call)
    return get_and_list.list_objects(call)


VERBS: Final[Mapping[str, Verb]] = {
    "create": _create,
    "get": _get,
    "list": _list,
    "watch": watch.watch,
    "update": update.update,
    "patch": patch.patch,
    "delete": delete.delete,
    "deletecollection": delete_collection,
    "connect": connect.connect,
}
