"""Get and list of objects that are not stored but computed on each request.

    GET /api/v1/componentstatuses/etcd-0   → what the source of the resource makes for that name

They have no revision, cannot be watched, and are listed without pages. Field selectors see only
their name.
"""

import asyncio
from typing import Final

from kvstack.apimachinery.objects import status
from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.text import json_text
from kvstack.apimachinery.schema.decode import normalize
from kvstack.apiserver.registry.reads import Page
from kvstack.apiserver.registry.record import Record
from kvstack.apiserver.verbs import options
from kvstack.apiserver.verbs.call import Call
from kvstack.apiserver.verbs.interfaces import ObjectSource
from kvstack.apiserver.verbs.reading import get_and_list
from kvstack.apiserver.verbs.results import Computed, Listing

_UNVERSIONED: Final = 0


async def get(call: Call) -> Computed:
    """Return one object; raises ApiError."""
    source, name = _source(call), call.info.name
    if name not in source.names:
        resource = call.endpoint.resource
        singular = GroupResource(resource.group, call.endpoint.row.singular)
        raise status.not_found(singular, name)
    return Computed(await _make_object(call, source, name), call.endpoint.kind, call.object_type)


async def list_objects(call: Call) -> Listing:
    """Return the listed objects; raises ApiError."""
    source = _source(call)
    list_options = options.list_options(call.query)
    selector = get_and_list.supported(call, list_options.fields)
    objects = await asyncio.gather(*[_make_object(call, source, name) for name in source.names])
    records = [
        _record(each)
        for each in objects
        if list_options.labels.matches(each["metadata"].get("labels") or {})
        and selector.matches({"metadata.name": each["metadata"]["name"], "metadata.namespace": ""})
    ]
    return Listing(Page(records, _UNVERSIONED))


def _source(call: Call) -> ObjectSource:
    resource = call.endpoint.resource
    found = call.env.sources.get((resource.group, resource.resource))
    if found is None:
        raise status.generic(405)
    return found


async def _make_object(call: Call, source: ObjectSource, name: str) -> Object:
    kind = call.endpoint.kind
    made = await source.make(name)
    return normalize({"kind": kind.kind, "apiVersion": kind.api_version, **made}, call.object_type)


def _record(obj: Object) -> Record:
    head = json_text.write({"kind": obj["kind"], "apiVersion": obj["apiVersion"]})[:-1] + b","
    rest = {name: value for name, value in obj.items() if name not in ("kind", "apiVersion")}
    name = obj["metadata"]["name"]
    return Record(name, _UNVERSIONED, head, json_text.write(rest)[1:], -1)
