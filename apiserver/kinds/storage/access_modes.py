"""Access modes in tables."""

from collections.abc import Iterable
from typing import Final

_SHORT: Final = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}


def modes_text(modes: Iterable[str] | None) -> str:
    """Return the abbreviated modes, in a fixed order."""
    given = set(modes or ())
    return ",".join(short for mode, short in _SHORT.items() if mode in given)
