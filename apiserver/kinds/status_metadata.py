"""What a write of the status may not change of the metadata, for kinds that are strict there."""

from typing import Final

from kvstack.apiserver.kinds.strategy import Obj

_KEPT: Final = (
    "deletionTimestamp",
    "generation",
    "selfLink",
    "labels",
    "annotations",
    "finalizers",
    "ownerReferences",
)


def keep_metadata(new: Obj, old: Obj) -> None:
    """Copy back all but the entries of managedFields."""
    metadata, before = new["metadata"], old["metadata"]
    for each in _KEPT:
        if each in before:
            metadata[each] = before[each]
        else:
            metadata.pop(each, None)
