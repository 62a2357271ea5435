"""The generation of an object: 1 on creation, incremented when the desired state changes."""

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apiserver.kinds.equality import same
from kvstack.apiserver.kinds.strategy import Context


def set_first_generation(obj: Object, _context: Context) -> None:
    """Set the generation of a new object; usable as `prepare_create`."""
    obj["metadata"]["generation"] = 1


def raise_generation(new: Object, old: Object, type_name: str, field: str = "spec") -> None:
    """Increment the generation if the field, of the named type, changed semantically."""
    if not same(new.get(field) or {}, old.get(field) or {}, type_name):
        new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
