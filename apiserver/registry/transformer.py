"""The registry's interface to encryption at rest.

    transformer = transformers.of(resource, b"/registry/secrets/")   None: nothing is encrypted
    transformer.to_storage("a/b", plain) → what is stored
    transformer.from_storage("a/b", stored) → Plain(value, is_stale)

Keys of an external service are fetched before values are decrypted (`prepare`); encrypting and
decrypting never wait.
"""

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from kvstack.apimachinery.objects.groups import GroupResource


class TransformError(ValueError):
    """A value cannot be encrypted or decrypted; the text says why."""


class Plain(NamedTuple):
    """A decrypted value."""

    value: bytes
    is_stale: bool
    """Whether a write would encrypt it differently now."""


class Transformer(Protocol):
    """Encrypts the values of one resource; keys are those of records."""

    def to_storage(self, key: str, plain: bytes) -> bytes:
        """Return a value as it is stored; raises TransformError."""
        ...

    def from_storage(self, key: str, stored: bytes) -> Plain:
        """Return a stored value as it was; raises TransformError."""
        ...


class Transformers(Protocol):
    """Encryption at rest."""

    def of(self, resource: GroupResource, key_prefix: bytes) -> Transformer | None:
        """Return the transformer of a resource; None: it is not encrypted."""
        ...

    async def prepare(self, values: Iterable[bytes]) -> None:
        """Fetch what is needed to decrypt values.

        What cannot be fetched becomes an error of `from_storage`.
        """
        ...
