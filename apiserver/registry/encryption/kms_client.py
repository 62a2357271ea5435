"""KMS v2 plugins over gRPC on a Unix socket."""

from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

import grpc
import grpc.aio

from kvstack.apimachinery.schema.protobuf.wire import LENGTH, ProtobufError, delimited, tag
from kvstack.apiserver.registry.encryption.kms import (
    Encrypted,
    KmsError,
    Status,
    bytes_of,
    fields_of,
    read_annotation,
    text_of,
    write_annotations,
)

_T = TypeVar("_T")
SERVICE: Final = "/v2.KeyManagementService/"


class GrpcKms:
    """A plugin; see `KmsService`."""

    def __init__(self, socket: str, timeout_s: float) -> None:
        """socket: an abstract one begins with @. Nothing is connected yet."""
        target = f"unix-abstract:{socket[1:]}" if socket.startswith("@") else f"unix:{socket}"
        self._channel: Final = grpc.aio.insecure_channel(target)
        self._timeout_s: Final = timeout_s

    async def status(self) -> Status:
        """Return the plugin's status; raises KmsError."""
        fields = dict(await self._call("Status", b""))
        return Status(*(_text(fields.get(number, b"")) for number in (1, 2, 3)))

    async def encrypt(self, uid: str, plain: bytes) -> Encrypted:
        """Encrypt a seed; raises KmsError."""
        asked = delimited(tag(1, LENGTH), plain) + delimited(tag(2, LENGTH), uid.encode())
        ciphertext, key_id, annotations = b"", "", dict[str, bytes]()
        for number, value in await self._call("Encrypt", asked):
            if number == 1:
                ciphertext = _bytes(value)
            elif number == 2:
                key_id = _text(value)
            elif number == 3:
                name, annotation = _read(partial(read_annotation, value))
                annotations[name] = annotation
        return Encrypted(ciphertext, key_id, annotations)

    async def decrypt(self, uid: str, encrypted: Encrypted) -> bytes:
        """Decrypt a seed; raises KmsError."""
        request = b"".join(
            (
                delimited(tag(1, LENGTH), encrypted.ciphertext),
                delimited(tag(2, LENGTH), uid.encode()),
                delimited(tag(3, LENGTH), encrypted.key_id.encode()),
                *write_annotations(4, encrypted.annotations),
            )
        )
        return _bytes(dict(await self._call("Decrypt", request)).get(1, b""))

    async def close(self) -> None:
        """Close the connection once pending calls have completed or timed out."""
        await self._channel.close(grace=self._timeout_s)

    async def _call(self, method: str, asked: bytes) -> list[tuple[int, int | bytes]]:
        call: grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]
        call = self._channel.unary_unary(f"{SERVICE}{method}")
        try:
            answer = await call(asked, timeout=self._timeout_s)
        except grpc.aio.AioRpcError as error:
            code = error.code().name
            raise KmsError(f"rpc error: code = {code} desc = {error.details()}") from None
        except grpc.aio.UsageError as error:
            raise KmsError(f"the connection to the plugin is closed: {error}") from None
        return _read(lambda: list(fields_of(answer)))


def _read(parse: Callable[[], _T]) -> _T:
    try:
        return parse()
    except ProtobufError as error:
        raise KmsError(f"the plugin's answer is malformed: {error}") from None


def _text(value: int | bytes) -> str:
    return _read(partial(text_of, value))


def _bytes(value: int | bytes) -> bytes:
    return _read(partial(bytes_of, value))
