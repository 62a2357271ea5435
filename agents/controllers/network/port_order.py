"""The order of ports in Endpoints and EndpointSlices: that of a hash of each, as upstream has it.

The order means nothing, but lists with the same order are equal when their ports are, whoever
wrote them.
"""

from collections.abc import Iterable
from typing import Final

from kvstack.apimachinery.objects.json_object import Object

_OFFSET: Final = 0x6C62272E07BB014262B821756295C58D
_PRIME: Final = 0x0000000001000000000000000000013B
_MASK: Final = (1 << 128) - 1
_NIL: Final = "<nil>"

_PORT: Final = "(v1.EndpointPort){{Name:(string){} Port:(int32){} Protocol:(v1.Protocol){}{}}}"
_SLICE_PORT: Final = (
    "(v1.EndpointPort){{Name:(*string){} Protocol:(*v1.Protocol){} Port:(*int32){}{}}}"
)
_APPLICATION: Final = " AppProtocol:(*string){}"


def hash_of(text: str) -> int:
    """Return the FNV-1a hash of 128 bits."""
    found = _OFFSET
    for byte in text.encode():
        found = ((found ^ byte) * _PRIME) & _MASK
    return found


def in_order(ports: Iterable[Object]) -> list[Object]:
    """Return the ports of an Endpoints subset in order."""
    return sorted(ports, key=_hash_of_port)


def in_slice_order(ports: Iterable[Object]) -> list[Object]:
    """Return the ports of an EndpointSlice in order."""
    return sorted(ports, key=_hash_of_slice_port)


def _hash_of_port(port: Object) -> int:
    application = _APPLICATION.format(port.get("appProtocol", _NIL))
    return hash_of(
        _PORT.format(port.get("name", ""), port["port"], port.get("protocol", ""), application)
    )


def _hash_of_slice_port(port: Object) -> int:
    application = _APPLICATION.format(port.get("appProtocol", _NIL))
    return hash_of(
        _SLICE_PORT.format(
            port.get("name", _NIL), port.get("protocol", _NIL), port.get("port", _NIL), application
        )
    )
