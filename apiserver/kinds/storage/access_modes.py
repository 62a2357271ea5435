"""Access modes of volumes as tables show them."""

from collections.abc import Iterable
from typing import Final

_SHORT: Final = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}


def modes_text(modes: Iterable[str] | None) -> str:
    """Return the modes in short, always in the same order."""
    given = set(modes or ())
    return ",".join(short for mode, short in _SHORT.items() if mode in given)
