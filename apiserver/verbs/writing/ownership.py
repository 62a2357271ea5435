"""Ownership of the fields that a request writes: managedFields."""

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.schema.stored_form import without_empty
from kvstack.apiserver.apply import update as managers
from kvstack.apiserver.verbs.call import Call


def own_new(call: Call, obj: Object, manager: str) -> None:
    """Set managedFields of an object that is to be created."""
    written = as_written(call, obj)
    managers.on_create(call.endpoint.fields, written, manager, call.now)
    _take_entries(obj, written)


def own_changed(call: Call, live: Object, obj: Object, manager: str) -> None:
    """Set managedFields of an object that is to replace a live one."""
    written = as_written(call, obj)
    managers.on_update(call.endpoint.fields, live, written, manager, call.now)
    _take_entries(obj, written)


def as_written(call: Call, obj: Object) -> Object:
    """Return an object of the endpoint's type as it is written; itself, if nothing differs."""
    if not call.has_empty:
        return obj
    written: Object = without_empty(obj, call.object_type)
    meta = {**(written.get("metadata") or {})}
    if "managedFields" in (obj.get("metadata") or {}):
        meta["managedFields"] = obj["metadata"]["managedFields"]  # empty: clears all managers
    return {**written, "metadata": meta}


def _take_entries(obj: Object, written: Object) -> None:
    """Give an object the managedFields that were computed for its written form."""
    if written is obj:
        return
    obj["metadata"].pop("managedFields", None)
    if "managedFields" in written["metadata"]:
        obj["metadata"]["managedFields"] = written["metadata"]["managedFields"]
