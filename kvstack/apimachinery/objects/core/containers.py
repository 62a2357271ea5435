"""The containers of a pod's spec."""

from collections.abc import Iterator
from typing import Any, Final

Obj = dict[str, Any]

CONTAINER_LISTS: Final = ("initContainers", "containers", "ephemeralContainers")
"""The fields of a spec that hold containers, in the order in which they are visited."""


def all_containers(spec: Obj) -> Iterator[Obj]:
    """Yield every container of a spec: init, regular, ephemeral ones."""
    for name in CONTAINER_LISTS:
        yield from spec.get(name) or ()
