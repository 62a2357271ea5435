"""Strategy hooks: writes of an object keep its status, writes of the status keep the rest."""

from typing import Final

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apiserver.kinds.strategy import Context

_KEPT: Final = (
    "deletionTimestamp",
    "generation",
    "selfLink",
    "labels",
    "annotations",
    "finalizers",
    "ownerReferences",
)


def keep_metadata(new: Object, old: Object) -> None:
    """Keep the metadata except managedFields."""
    metadata, before = new["metadata"], old["metadata"]
    for each in _KEPT:
        if each in before:
            metadata[each] = before[each]
        else:
            metadata.pop(each, None)


def begin_without_status(obj: Object, _context: Context) -> None:
    """Prepare a new object: clear its status."""
    obj["status"] = {}


def keep_status(new: Object, old: Object, _context: Context) -> None:
    """Prepare an update: the status stays."""
    new["status"] = old["status"]


def keep_spec(new: Object, old: Object, _context: Context) -> None:
    """Prepare a write of the status: the spec stays."""
    new["spec"] = old["spec"]


def keep_all_but_status(new: Object, old: Object, _context: Context) -> None:
    """Prepare a write of the status, for kinds that keep the metadata, too."""
    new["spec"] = old["spec"]
    keep_metadata(new, old)
