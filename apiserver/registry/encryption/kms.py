"""KMS v2: values are encrypted with a seed that a plugin encrypts and decrypts.

    stored value = EncryptedObject{data, key id, encrypted seed, annotations}

The seed for writes is generated here, once for each key of the plugin. It may be used for three
minutes after the plugin last confirmed that its key is current. The plugin decrypts each seed of
stored values once; they are cached.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from secrets import token_bytes
from typing import Final, NamedTuple, Protocol, TypeAlias

from kvstack.apimachinery.schema.protobuf.leaves import fields
from kvstack.apimachinery.schema.protobuf.wire import (
    LENGTH,
    VARINT,
    ProtobufError,
    delimited,
    tag,
    varint,
)
from kvstack.apiserver.registry.encryption.ciphers import (
    SEED_BYTES,
    AesGcm,
    Cipher,
    ExtendedNonce,
    RandomBytes,
)
from kvstack.apiserver.registry.transformer import Plain, TransformError
from kvstack.component.clock import Clock
from kvstack.component.units import SECOND_NS

HEALTHY_S: Final = 60.0
UNHEALTHY_S: Final = 10.0
WRITE_NS: Final = 180 * SECOND_NS
"""How long a seed is used for writes after the plugin has confirmed its key."""
VERSIONS: Final = ("v2", "v2beta1")
KEY_ID_BYTES_MAX: Final = 1024
SEED_BYTES_MAX: Final = 1024
ANNOTATION_BYTES_MAX: Final = 32 * 1024
CIPHERS_MAX: Final = 1000
_GCM_KEY: Final = 0
_SEED: Final = 1

Annotations: TypeAlias = Mapping[str, bytes]


class KmsError(Exception):
    """A call of the plugin failed; the text says why."""


class Status(NamedTuple):
    """The status that a plugin reports."""

    version: str
    healthz: str
    """`ok`, or what is wrong."""
    key_id: str


class Encrypted(NamedTuple):
    """A seed that the plugin encrypted."""

    ciphertext: bytes
    key_id: str
    annotations: Annotations


class KmsService(Protocol):
    """A plugin; all methods raise KmsError."""

    async def status(self) -> Status:
        """Return the plugin's status."""
        ...

    async def encrypt(self, uid: str, plain: bytes) -> Encrypted:
        """Encrypt a seed."""
        ...

    async def decrypt(self, uid: str, encrypted: Encrypted) -> bytes:
        """Decrypt a seed, or a key of an older format."""
        ...

    async def close(self) -> None:
        """Close the connection."""
        ...


class EncryptedObject(NamedTuple):
    """A stored value."""

    data: bytes
    seed: Encrypted
    seed_type: int = _SEED


class _Current(NamedTuple):
    """The seed for writes."""

    cipher: Cipher
    seed: Encrypted
    until_ns: int


class KmsProvider:
    """Encrypts and decrypts values by a plugin's keys; see `Provider`."""

    def __init__(
        self,
        name: str,
        service: KmsService,
        clock: Clock,
        new_uid: Callable[[], str],
        random: RandomBytes = token_bytes,
    ) -> None:
        """No call is made yet."""
        self.name: Final = name
        self._service: Final = service
        self._clock: Final = clock
        self._new_uid: Final = new_uid
        self._random: Final = random
        self._current: _Current | None = None
        self._version = ""
        self._ciphers: OrderedDict[tuple[object, ...], Cipher] = OrderedDict()
        self._failures: dict[tuple[object, ...], str] = {}
        self.error = "the plugin was not called yet"
        """What is wrong with the plugin; empty: nothing is."""
        self.misses = 0
        """Number of seeds that the plugin had to decrypt."""
        self._checking = asyncio.Lock()

    # Values.

    def seal(self, plain: bytes, context: bytes) -> bytes:
        """Return a value as it is stored after the prefix; raises TransformError."""
        current = self._current
        if current is None:
            raise TransformError(f"the KMS provider {self.name} is not ready: {self.error}")
        if self._clock.monotonic_ns() > current.until_ns:
            raise TransformError(
                f"encryptedDEKSource of KMS provider {self.name} expired: {self.error}"
            )
        return write_object(EncryptedObject(current.cipher.seal(plain, context), current.seed))

    def open(self, sealed: bytes, context: bytes) -> Plain:
        """Return the plain value; its seed must have been fetched. Raises TransformError."""
        envelope = _read(sealed)
        key = _key_of(envelope)
        cipher = self._ciphers.get(key)
        if cipher is None:
            why = self._failures.get(key, "its key was not fetched")
            raise TransformError(f"failed to decrypt DEK, error: {why}")
        current = self._current
        is_stale = current is not None and (
            envelope.seed_type != _SEED or envelope.seed.key_id != current.seed.key_id
        )
        return Plain(cipher.open(envelope.data, context), is_stale)

    async def fetch(self, values: Iterable[bytes]) -> None:
        """Have the plugin decrypt the seeds of values that are not cached."""
        encrypted: dict[tuple[object, ...], EncryptedObject] = {}
        for each in values:
            try:
                object_ = _read(each)
            except TransformError:
                continue  # decryption of the value will report it
            key = _key_of(object_)
            if key not in self._ciphers:
                encrypted[key] = object_
        for key, object_ in encrypted.items():
            self.misses += 1
            try:
                plain = await self._service.decrypt(self._new_uid(), object_.seed)
                cipher: Cipher = (
                    ExtendedNonce(plain, self._random)
                    if object_.seed_type == _SEED
                    else AesGcm(plain, self._random)
                )
            except (KmsError, TransformError, ValueError) as error:
                if len(self._failures) >= CIPHERS_MAX:
                    self._failures.clear()
                self._failures[key] = str(error)
            else:
                self._failures.pop(key, None)
                self._keep(key, cipher)

    # The plugin.

    async def check(self) -> str:
        """Query the plugin's status, and change the seed if its key has; return what is wrong."""
        async with self._checking:
            try:
                await self._check()
            except KmsError as error:
                self.error = f"kmsv2 Provider {self.name} is not healthy, error: {error}"
            else:
                self.error = ""
        return self.error

    async def close(self) -> None:
        """Close the connection."""
        await self._service.close()

    async def _check(self) -> None:
        status = await self._service.status()
        if status.healthz != "ok":
            raise KmsError(f"got unexpected healthz status: {status.healthz}")
        if status.version not in VERSIONS:
            raise KmsError(f"expected KMSv2 API version v2, got {status.version}")
        self._version = self._version or status.version
        if status.version != self._version:
            raise KmsError(
                "KMSv2 API version should not change after the initial status response version"
                f" {self._version}, got {status.version}"
            )
        _check_key_id(status.key_id)
        until_ns = self._clock.monotonic_ns() + WRITE_NS
        current = self._current
        if current is not None and current.seed.key_id == status.key_id:
            self._current = current._replace(until_ns=until_ns)
            return
        await self._change_seed(status.key_id, until_ns)

    async def _change_seed(self, key_id: str, until_ns: int) -> None:
        seed = self._random(SEED_BYTES)
        encrypted = await self._service.encrypt(self._new_uid(), seed)
        _check_key_id(encrypted.key_id)
        if not 0 < len(encrypted.ciphertext) <= SEED_BYTES_MAX:
            raise KmsError(f"got an encrypted seed of {len(encrypted.ciphertext)} bytes")
        size = sum(len(name) + len(value) for name, value in encrypted.annotations.items())
        if size > ANNOTATION_BYTES_MAX:
            raise KmsError(f"got annotations of {size} bytes")
        if encrypted.key_id != key_id:
            raise KmsError(
                "failed to rotate DEK: the plugin encrypts with another key than it says"
            )
        cipher = ExtendedNonce(seed, self._random)
        self._current = _Current(cipher, encrypted, until_ns)
        self._keep(_key_of(EncryptedObject(b"", encrypted)), cipher)

    def _keep(self, key: tuple[object, ...], cipher: Cipher) -> None:
        if len(self._ciphers) >= CIPHERS_MAX:
            self._ciphers.popitem(last=False)
        self._ciphers[key] = cipher


def _check_key_id(key_id: str) -> None:
    if not key_id:
        raise KmsError("got invalid KMSv2 KeyID: keyID is empty")
    if len(key_id.encode()) > KEY_ID_BYTES_MAX:
        size = len(key_id.encode())
        raise KmsError(
            f"got invalid KMSv2 KeyID: keyID is {size} bytes, which exceeds the max size of"
            f" {KEY_ID_BYTES_MAX}"
        )


def _key_of(found: EncryptedObject) -> tuple[object, ...]:
    seed = found.seed
    return found.seed_type, seed.ciphertext, seed.key_id, tuple(sorted(seed.annotations.items()))


# The stored form.


def write_object(object_: EncryptedObject) -> bytes:
    """Return the bytes of a value."""
    parts = [
        delimited(tag(1, LENGTH), object_.data),
        delimited(tag(2, LENGTH), object_.seed.key_id.encode()),
        delimited(tag(3, LENGTH), object_.seed.ciphertext),
        *write_annotations(4, object_.seed.annotations),
    ]
    if object_.seed_type:
        parts.append(tag(5, VARINT) + varint(object_.seed_type))
    return b"".join(parts)


def write_annotations(number: int, annotations: Annotations) -> Iterable[bytes]:
    """Return the entries of a bytes map as a field of a message."""
    for name, value in sorted(annotations.items()):
        entry = delimited(tag(1, LENGTH), name.encode()) + delimited(tag(2, LENGTH), value)
        yield delimited(tag(number, LENGTH), entry)


def fields_of(data: bytes) -> Iterable[tuple[int, int | bytes]]:
    """Yield the varint and length-delimited fields of a message; raises ProtobufError."""
    return fields(data, 0, len(data))


def read_annotation(entry: int | bytes) -> tuple[str, bytes]:
    """Return one entry of a bytes map; raises ProtobufError."""
    if not isinstance(entry, bytes):
        raise ProtobufError("map entries must be length-delimited")
    members = dict(fields_of(entry))
    return text_of(members.get(1, b"")), bytes_of(members.get(2, b""))


def bytes_of(value: int | bytes) -> bytes:
    """Return a value that must be length-delimited; raises ProtobufError."""
    if not isinstance(value, bytes):
        raise ProtobufError("expected bytes, got a number")
    return value


def text_of(value: int | bytes) -> str:
    """Return a value that must be a string; raises ProtobufError."""
    try:
        return bytes_of(value).decode()
    except UnicodeDecodeError as error:
        raise ProtobufError(str(error)) from None


def _read(sealed: bytes) -> EncryptedObject:
    data = ciphertext = b""
    key_id, seed_type, annotations = "", _GCM_KEY, dict[str, bytes]()
    try:
        for number, value in fields_of(sealed):
            match number:
                case 1:
                    data = bytes_of(value)
                case 2:
                    key_id = text_of(value)
                case 3:
                    ciphertext = bytes_of(value)
                case 4:
                    name, annotation = read_annotation(value)
                    annotations[name] = annotation
                case 5 if isinstance(value, int):
                    seed_type = value
                case _:
                    continue
    except ProtobufError as error:
        raise TransformError(str(error)) from None
    if seed_type not in (_GCM_KEY, _SEED):
        raise TransformError(f"unknown encryptedDEKSourceType: {seed_type}")
    if not data:
        raise TransformError("encrypted data is empty")
    return EncryptedObject(data, Encrypted(ciphertext, key_id, annotations), seed_type)
