"""The provider of a stored value, recognized by the value's prefix.

    Prefixed([(b"k8s:enc:aescbc:v1:", Prefixed([(b"key2:", cipher), (b"key1:", cipher)])), …])

The first one encrypts. All whose prefix a value has are tried for decryption; a value that the
first did not encrypt is stale.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple, Protocol

from kvstack.apiserver.registry.encryption.ciphers import Cipher
from kvstack.apiserver.registry.transformer import Plain, TransformError

ENCRYPTED: Final = b"k8s:enc:"
"""Prefix of all encrypted values."""


class Provider(Protocol):
    """Encrypts and decrypts values without their prefix."""

    def seal(self, plain: bytes, context: bytes) -> bytes:
        """Return a value as it is stored after the prefix; raises TransformError."""
        ...

    def open(self, sealed: bytes, context: bytes) -> Plain:
        """Return the plain value; raises TransformError."""
        ...


class NamedProvider(NamedTuple):
    """A provider and the prefix of its values."""

    prefix: bytes
    provider: Provider


class Identity:
    """Leaves values as they are."""

    def seal(self, plain: bytes, context: bytes) -> bytes:
        """Return the value."""
        del context
        return plain

    def open(self, sealed: bytes, context: bytes) -> Plain:
        """Return the value, unless it is encrypted."""
        del context
        if sealed.startswith(ENCRYPTED):
            raise TransformError("identity transformer tried to read encrypted data")
        return Plain(sealed, is_stale=False)


class OneKey:
    """A cipher as a provider."""

    def __init__(self, cipher: Cipher) -> None:
        self._cipher: Final = cipher

    def seal(self, plain: bytes, context: bytes) -> bytes:
        """Return the ciphertext."""
        return self._cipher.seal(plain, context)

    def open(self, sealed: bytes, context: bytes) -> Plain:
        """Return the plain value; raises TransformError."""
        return Plain(self._cipher.open(sealed, context), is_stale=False)


class Counts:
    """Counts of encrypted and decrypted values."""

    def __init__(self) -> None:
        self.operations: Final[dict[tuple[str, str, str], int]] = {}
        """Counts by type (to_storage, from_storage), prefix and status (OK, Unknown)."""

    def add(self, type_: str, prefix: bytes, *, is_fine: bool) -> None:
        """Count one."""
        key = type_, prefix.decode("utf-8", "replace") or "identity", "OK" if is_fine else "Unknown"
        self.operations[key] = self.operations.get(key, 0) + 1


class Prefixed:
    """Providers selected by prefix; itself a provider."""

    def __init__(
        self, providers: Iterable[NamedProvider], unmatched: str, counts: Counts | None = None
    ) -> None:
        """Take at least one; unmatched: the error of a value that matches none."""
        self.providers: Final = tuple(providers)
        self._unmatched: Final = unmatched
        self._counts: Final = counts

    def seal(self, plain: bytes, context: bytes) -> bytes:
        """Return a value encrypted by the first provider, with prefix; raises TransformError."""
        prefix, provider = self.providers[0]
        try:
            sealed = prefix + provider.seal(plain, context)
        except TransformError:
            self._count("to_storage", prefix, is_fine=False)
            raise
        self._count("to_storage", prefix, is_fine=True)
        return sealed

    def open(self, sealed: bytes, context: bytes) -> Plain:
        """Return the plain value; raises TransformError."""
        errors: dict[str, None] = {}
        for position, (prefix, provider) in enumerate(self.providers):
            if not sealed.startswith(prefix):
                continue
            try:
                plain = provider.open(sealed[len(prefix) :], context)
            except TransformError as error:
                if prefix:  # identity does not take encrypted values; another provider may follow
                    self._count("from_storage", prefix, is_fine=False)
                    errors[str(error)] = None
                continue
            self._count("from_storage", prefix, is_fine=True)
            return Plain(plain.value, plain.is_stale or position > 0)
        if not errors:
            raise TransformError(self._unmatched)
        raise TransformError(next(iter(errors)) if len(errors) == 1 else f"[{', '.join(errors)}]")

    def _count(self, type_: str, prefix: bytes, *, is_fine: bool) -> None:
        if self._counts is not None:
            self._counts.add(type_, prefix, is_fine=is_fine)
