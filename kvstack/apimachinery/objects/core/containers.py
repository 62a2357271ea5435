"""The containers of a pod's spec."""

from collections.abc import Iterator
from typing import Final

from kvstack.apimachinery.objects.json_object import Object

CONTAINER_LISTS: Final = ("initContainers", "containers", "ephemeralContainers")
"""The fields of a spec that hold containers, in the order in which they are visited."""


def all_containers(spec: Object) -> Iterator[Object]:
    """Yield every container of a spec: init, regular, ephemeral ones."""
    for name in CONTAINER_LISTS:
        yield from spec.get(name) or ()
