"""Who owns the fields of an object that a request writes: its managedFields."""

from kvstack.apimachinery.schema.stored_form import without_empty
from kvstack.apiserver.apply import update as managers
from kvstack.apiserver.registry.record import Obj
from kvstack.apiserver.verbs.call import Call


def own_new(call: Call, obj: Obj, manager: str) -> None:
    """Set managedFields of an object that is to be created."""
    written = as_written(call, obj)
    managers.on_create(call.endpoint.fields, written, manager, call.now)
    _take_entries(obj, written)


def own_changed(call: Call, live: Obj, obj: Obj, manager: str) -> None:
    """Set managedFields of an object that is to replace a live one."""
    written = as_written(call, obj)
    managers.on_update(call.endpoint.fields, live, written, manager, call.now)
    _take_entries(obj, written)


def as_written(call: Call, obj: Obj) -> Obj:
    """Return an object of the endpoint's type as it is written; itself, where that is the same."""
    if not call.has_empty:
        return obj
    written: Obj = without_empty(obj, call.object_type)
    meta = {**(written.get("metadata") or {})}
    if "managedFields" in (obj.get("metadata") or {}):
        meta["managedFields"] = obj["metadata"]["managedFields"]  # empty: all is to be forgotten
    return {**written, "metadata": meta}


def _take_entries(obj: Obj, written: Obj) -> None:
    """Give an object the managedFields that were found for what is written of it."""
    if written is obj:
        return
    obj["metadata"].pop("managedFields", None)
    if "managedFields" in written["metadata"]:
        obj["metadata"]["managedFields"] = written["metadata"]["managedFields"]
