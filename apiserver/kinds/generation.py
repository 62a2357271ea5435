"""The generation of an object: 1 when it is made, one more when what is wanted of it changes."""

from kvstack.apiserver.kinds.equality import same
from kvstack.apiserver.kinds.strategy import Context, Obj


def set_first_generation(obj: Obj, _context: Context) -> None:
    """Give a new object its generation; fits as a `prepare_create`."""
    obj["metadata"]["generation"] = 1


def raise_generation(new: Obj, old: Obj, type_name: str, field: str = "spec") -> None:
    """Raise the generation if the field, of the named type, does not mean the same any more."""
    if not same(new.get(field) or {}, old.get(field) or {}, type_name):
        new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
