"""A KMS plugin of the tests' own: over gRPC on a socket, or called directly.

It encrypts by XOR with a byte that belongs to the key's name, and remembers what it was asked.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

import grpc
import grpc.aio
from typing_extensions import override

from kvstack.apimachinery.schema.protobuf.wire import LENGTH, delimited, tag
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


@dataclass
class Plugin:
    """The plugin; a KmsService itself."""

    key_id: str = "key-1"
    healthz: str = "ok"
    version: str = "v2"
    failing: str = ""
    asked: list[str] = field(default_factory=list)

    async def status(self) -> Status:
        self._called("status")
        return Status(self.version, self.healthz, self.key_id)

    async def encrypt(self, uid: str, plain: bytes) -> Encrypted:
        self._called("encrypt")
        assert uid
        return Encrypted(self._mixed(plain, self.key_id), self.key_id, {"a.example.com": b"\0x"})

    async def decrypt(self, uid: str, encrypted: Encrypted) -> bytes:
        self._called("decrypt")
        assert uid
        if encrypted.annotations != {"a.example.com": b"\0x"}:
            raise KmsError("the annotations are gone")
        return self._mixed(encrypted.ciphertext, encrypted.key_id)

    async def close(self) -> None:
        self._called("close")

    def _called(self, name: str) -> None:
        self.asked.append(name)
        if self.failing and name != "close":
            raise KmsError(self.failing)

    @staticmethod
    def _mixed(data: bytes, key_id: str) -> bytes:
        mask = sum(key_id.encode()) % 255 + 1
        return bytes(byte ^ mask for byte in data)


def _texts(data: bytes) -> dict[int, int | bytes]:
    return dict(fields_of(data))


Context: TypeAlias = "grpc.aio.ServicerContext[bytes, bytes]"


class _Handler(grpc.GenericRpcHandler):
    def __init__(self, plugin: Plugin) -> None:
        self._methods = {
            "Status": self._status,
            "Encrypt": self._encrypt,
            "Decrypt": self._decrypt,
        }
        self._plugin = plugin

    @override
    def service(
        self, details: grpc.HandlerCallDetails
    ) -> "grpc.RpcMethodHandler[bytes, bytes] | None":
        service, _, method = details.method.rpartition("/")
        if service != "/v2.KeyManagementService" or method not in self._methods:
            return None
        return grpc.unary_unary_rpc_method_handler(self._methods[method])

    async def _status(self, _data: bytes, context: Context) -> bytes:
        try:
            found = await self._plugin.status()
        except KmsError as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(error))
        return b"".join(
            delimited(tag(number, LENGTH), text.encode()) for number, text in enumerate(found, 1)
        )

    async def _encrypt(self, data: bytes, _context: Context) -> bytes:
        asked = _texts(data)
        found = await self._plugin.encrypt(text_of(asked[2]), bytes_of(asked[1]))
        return b"".join(
            (
                delimited(tag(1, LENGTH), found.ciphertext),
                delimited(tag(2, LENGTH), found.key_id.encode()),
                *write_annotations(3, found.annotations),
            )
        )

    async def _decrypt(self, data: bytes, _context: Context) -> bytes:
        asked = _texts(data)
        annotations = dict(read_annotation(v) for n, v in fields_of(data) if n == 4)
        encrypted = Encrypted(bytes_of(asked[1]), text_of(asked[3]), annotations)
        plain = await self._plugin.decrypt(text_of(asked[2]), encrypted)
        return delimited(tag(1, LENGTH), plain)


@asynccontextmanager
async def listening(plugin: Plugin, socket: Path) -> AsyncIterator[None]:
    """Serve a plugin on a socket."""
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((_Handler(plugin),))
    server.add_insecure_port(f"unix:{socket}")
    await server.start()
    try:
        yield
    finally:
        await server.stop(0)
