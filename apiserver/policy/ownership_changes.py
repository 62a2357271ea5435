"""Detection of writes that change only what the garbage collector changes."""

from typing import Any, Final

from kvstack.apiserver.kinds.equality import same

Obj = dict[str, Any]

_IGNORED: Final = frozenset(("ownerReferences", "finalizers", "selfLink", "managedFields"))


def changes_only_ownership(new: Obj, old: Obj, type_name: str) -> bool:
    """Return whether two objects of a type differ in owner references and finalizers only."""
    return same(_compared(new), _compared(old), type_name)


def _compared(obj: Obj) -> Obj:
    metadata = obj.get("metadata") or {}
    kept = {name: value for name, value in metadata.items() if name not in _IGNORED}
    return {**obj, "metadata": kept}
