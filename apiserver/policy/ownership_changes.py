"""Detection of writes that change only what the garbage collector changes."""

from typing import Final

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apiserver.kinds.equality import same

_IGNORED: Final = frozenset(("ownerReferences", "finalizers", "selfLink", "managedFields"))


def changes_only_ownership(new: Object, old: Object, type_name: str) -> bool:
    """Return whether two objects of a type differ in owner references and finalizers only."""
    return same(_compared(new), _compared(old), type_name)


def _compared(obj: Object) -> Object:
    metadata = obj.get("metadata") or {}
    kept = {name: value for name, value in metadata.items() if name not in _IGNORED}
    return {**obj, "metadata": kept}
