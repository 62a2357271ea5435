"""Ciphers of stored values.

    AES-CBC     IV, ciphertext with PKCS #7 padding
    AES-GCM     nonce, ciphertext and tag; bound to the key of the store
    extended    info, then as AES-GCM with a key derived from a seed and the info
    secretbox   nonce, XSalsa20-Poly1305

`context` is bound to the value where the cipher can authenticate it.
"""

from collections.abc import Callable
from secrets import token_bytes
from typing import Final, Protocol, TypeAlias

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers import Cipher as BlockCipher
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CBC
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand
from cryptography.hazmat.primitives.padding import PKCS7

from kvstack.apiserver.registry.transformer import TransformError

RandomBytes: TypeAlias = Callable[[int], bytes]
KEY_BYTES: Final = (16, 24, 32)
SEED_BYTES: Final = 32
_BLOCK: Final = 16
_NONCE: Final = 12
_BOX_NONCE: Final = 24
_TOO_SHORT: Final = "the stored data was shorter than the required size"
_FORGED: Final = "cipher: message authentication failed"


class Cipher(Protocol):
    """Encrypts and decrypts values with one key."""

    def seal(self, plain: bytes, context: bytes) -> bytes:
        """Return the ciphertext."""
        ...

    def open(self, sealed: bytes, context: bytes) -> bytes:
        """Return the plain value; raises TransformError."""
        ...


class AesCbc:
    """AES-CBC: not authenticated."""

    def __init__(self, key: bytes, random: RandomBytes = token_bytes) -> None:
        """key: 16, 24 or 32 bytes."""
        self._aes: Final = AES(key)
        self._random: Final = random

    def seal(self, plain: bytes, context: bytes) -> bytes:
        """Return IV and ciphertext."""
        del context
        iv = self._random(_BLOCK)
        padder = PKCS7(8 * _BLOCK).padder()
        encryptor = BlockCipher(self._aes, CBC(iv)).encryptor()
        padded = padder.update(plain) + padder.finalize()
        return iv + encryptor.update(padded) + encryptor.finalize()

    def open(self, sealed: bytes, context: bytes) -> bytes:
        """Return the plain value; raises TransformError."""
        del context
        if len(sealed) < _BLOCK:
            raise TransformError(_TOO_SHORT)
        if len(sealed) % _BLOCK:
            raise TransformError("the stored data is not a multiple of the block size")
        decryptor = BlockCipher(self._aes, CBC(sealed[:_BLOCK])).decryptor()
        padded = decryptor.update(sealed[_BLOCK:]) + decryptor.finalize()
        unpadder = PKCS7(8 * _BLOCK).unpadder()
        try:
            return unpadder.update(padded) + unpadder.finalize()
        except ValueError:
            raise TransformError("invalid padding on input") from None


class AesGcm:
    """AES-GCM with random nonces."""

    def __init__(self, key: bytes, random: RandomBytes = token_bytes) -> None:
        """key: 16, 24 or 32 bytes."""
        self._aead: Final = AESGCM(key)
        self._random: Final = random

    def seal(self, plain: bytes, context: bytes) -> bytes:
        """Return nonce, ciphertext and tag."""
        nonce = self._random(_NONCE)
        return nonce + self._aead.encrypt(nonce, plain, context)

    def open(self, sealed: bytes, context: bytes) -> bytes:
        """Return the plain value; raises TransformError."""
        if len(sealed) < _NONCE:
            raise TransformError(_TOO_SHORT)
        try:
            return self._aead.decrypt(sealed[:_NONCE], sealed[_NONCE:], context)
        except InvalidTag:
            raise TransformError(_FORGED) from None


class ExtendedNonce:
    """AES-GCM with a key for every value, derived from a seed: a nonce never repeats."""

    def __init__(self, seed: bytes, random: RandomBytes = token_bytes) -> None:
        """seed: at least 32 bytes; raises TransformError."""
        if len(seed) < SEED_BYTES:
            raise TransformError(f"invalid seed length {len(seed)} used for key generation")
        self._seed: Final = seed
        self._random: Final = random

    def seal(self, plain: bytes, context: bytes) -> bytes:
        """Return info, nonce, ciphertext and tag."""
        info = self._random(SEED_BYTES)
        return info + AesGcm(self._key(info), self._random).seal(plain, context)

    def open(self, sealed: bytes, context: bytes) -> bytes:
        """Return the plain value; raises TransformError."""
        if len(sealed) < SEED_BYTES:
            raise TransformError(_TOO_SHORT)
        info = sealed[:SEED_BYTES]
        return AesGcm(self._key(info)).open(sealed[SEED_BYTES:], context)

    def _key(self, info: bytes) -> bytes:
        return HKDFExpand(SHA256(), SEED_BYTES, info).derive(self._seed)


class SecretBox:
    """XSalsa20-Poly1305 with random nonces."""

    def __init__(self, key: bytes, random: RandomBytes = token_bytes) -> None:
        """key: 32 bytes."""
        from nacl.secret import SecretBox as Box  # only its users load libsodium

        self._box: Final = Box(key)
        self._random: Final = random

    def seal(self, plain: bytes, context: bytes) -> bytes:
        """Return nonce and ciphertext."""
        del context
        return bytes(self._box.encrypt(plain, self._random(_BOX_NONCE)))

    def open(self, sealed: bytes, context: bytes) -> bytes:
        """Return the plain value; raises TransformError."""
        from nacl.exceptions import CryptoError

        del context
        if len(sealed) < _BOX_NONCE + _BLOCK:
            raise TransformError(_TOO_SHORT)
        try:
            return self._box.decrypt(sealed)
        except CryptoError:
            raise TransformError("output array was not large enough for encryption") from None
