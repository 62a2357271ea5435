"""What the registry asks of encryption at rest.

    sealing = sealer.of(resource, b"/registry/secrets/")     None: values are stored as they are
    sealing.sealed("a/b", plain) → what is stored
    sealing.plain("a/b", stored) → Plain(value, is_stale)

Keys that have to be asked for elsewhere are fetched before values are opened (`prepare`); sealing
and opening never wait.
"""

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from kvstack.apiserver.objects.groups import GroupResource


class SealError(ValueError):
    """A value cannot be opened, or not be sealed; the text says why."""


class Plain(NamedTuple):
    """An opened value."""

    value: bytes
    is_stale: bool
    """Whether it would be sealed in another way today."""


class Sealing(Protocol):
    """Seals the values of one resource; keys are those of records."""

    def sealed(self, key: str, plain: bytes) -> bytes:
        """Return a value as it is stored; raises SealError."""
        ...

    def plain(self, key: str, stored: bytes) -> Plain:
        """Return a stored value as it was; raises SealError."""
        ...


class Sealer(Protocol):
    """Encryption at rest."""

    def of(self, resource: GroupResource, place: bytes) -> Sealing | None:
        """Return how values of a resource are sealed; place: what their keys begin with."""
        ...

    async def prepare(self, values: Iterable[bytes]) -> None:
        """Fetch what is needed to open values; what cannot be fetched is told when they are."""
        ...
