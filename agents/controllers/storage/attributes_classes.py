"""Protection of VolumeAttributesClasses that claims or volumes use.

    finalizer kubernetes.io/vac-protection, until no claim and no volume names the class

A claim names the class that it wants, the one that it has, and the one that it is being changed to.
As upstream only what is watched is asked, not the server.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from kvstack.agents.client.built_in import (
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    VOLUME_ATTRIBUTES_CLASSES,
)
from kvstack.agents.client.object_store import key_of
from kvstack.agents.controllers.ownership import is_deleting, own_key
from kvstack.agents.controllers.storage.finalizers import finalizers_of, hold, let_go
from kvstack.agents.reconcile.plan import BaseController, Identity, Index, Plan, View, Watch
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.well_known import ATTRIBUTES_CLASS_FINALIZER

_INDEX: Final = "volume attributes classes"


class AttributesClassProtection(BaseController):
    """Protects classes in use."""

    workers = 1

    def __init__(self) -> None:
        """Watch classes, and who names them."""
        name = "volumeattributesclass-protection-controller"
        self.identity: Identity = Identity(name, name, name)
        self.watches: Sequence[Watch] = (
            Watch(VOLUME_ATTRIBUTES_CLASSES, own_key),
            Watch(PERSISTENT_VOLUME_CLAIMS, _no_longer_named),
            Watch(PERSISTENT_VOLUMES, _no_longer_named),
        )
        self.indexes: Sequence[Index] = (
            Index(PERSISTENT_VOLUME_CLAIMS, _INDEX, classes_of),
            Index(PERSISTENT_VOLUMES, _INDEX, classes_of),
        )

    def reconcile(self, key: str, view: View, now_s: float) -> Plan:
        """Return the plan for one class."""
        attributes_class = view.get(VOLUME_ATTRIBUTES_CLASSES, key)
        if attributes_class is None:
            return None
        is_held = ATTRIBUTES_CLASS_FINALIZER in finalizers_of(attributes_class)
        if not is_deleting(attributes_class):
            if not is_held:
                yield from hold(
                    VOLUME_ATTRIBUTES_CLASSES, attributes_class, ATTRIBUTES_CLASS_FINALIZER
                )
        elif is_held and not _is_named(key_of(attributes_class), view):
            yield from let_go(
                VOLUME_ATTRIBUTES_CLASSES, attributes_class, ATTRIBUTES_CLASS_FINALIZER
            )
        return None


def classes_of(obj: Object) -> tuple[str, ...]:
    """Return the classes that a claim or a volume names."""
    status = obj.get("status") or {}
    named = (
        obj["spec"].get("volumeAttributesClassName"),
        status.get("currentVolumeAttributesClassName"),
        (status.get("modifyVolumeStatus") or {}).get("targetVolumeAttributesClassName"),
    )
    return tuple(dict.fromkeys(filter(None, named)))


def _is_named(name: str, view: View) -> bool:
    return any(
        view.by_index(resource, _INDEX, name)
        for resource in (PERSISTENT_VOLUMES, PERSISTENT_VOLUME_CLAIMS)
    )


def _no_longer_named(old: Object | None, new: Object | None, view: View) -> Iterable[str]:
    if old is not None:
        named = classes_of(new) if new is not None else ()
        yield from (each for each in classes_of(old) if each not in named)
