"""Calls of the container runtime interface.

client = CriClient("unix:///run/containerd/containerd.sock")
answer = await client.call("Version", VersionRequest())         raises CriError
"""

from typing import Final, TypeVar

import grpc
import grpc.aio
from google.protobuf.message import Message

_MESSAGE_BYTES_MAX: Final = 16 << 20
_CALL_S: Final = 120.0
_IMAGE_CALLS: Final = frozenset(
    ("ListImages", "ImageStatus", "PullImage", "RemoveImage", "ImageFsInfo")
)
_Answer = TypeVar("_Answer", bound=Message)


class CriError(Exception):
    """A call failed; the text is the engine's."""

    def __init__(self, code: str, text: str) -> None:
        """code: of gRPC, such as NOT_FOUND."""
        super().__init__(text)
        self.code = code
        self.text = text


class CriClient:
    """One engine; all of it belongs to one loop."""

    def __init__(self, endpoint: str) -> None:
        """Connects at the first call; endpoint: unix://PATH, or the path alone."""
        self._target = endpoint if "://" in endpoint else f"unix://{endpoint}"
        self._channel: grpc.aio.Channel | None = None

    async def call(
        self,
        method: str,
        request: Message,
        answer: type[_Answer],
        timeout_s: float | None = _CALL_S,
    ) -> _Answer:
        """Return the answer to a call; raises CriError."""
        if self._channel is None:
            options = [
                ("grpc.max_receive_message_length", _MESSAGE_BYTES_MAX),
                ("grpc.default_authority", "localhost"),
            ]
            self._channel = grpc.aio.insecure_channel(self._target, options=options)
        service = "ImageService" if method in _IMAGE_CALLS else "RuntimeService"
        call: grpc.aio.UnaryUnaryMultiCallable[Message, _Answer] = self._channel.unary_unary(
            f"/runtime.v1.{service}/{method}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=answer.FromString,
        )
        try:
            return await call(request, timeout=timeout_s)
        except grpc.aio.AioRpcError as error:
            raise CriError(error.code().name, error.details() or "") from error

    async def close(self) -> None:
        """Give up the connection."""
        if self._channel is not None:
            await self._channel.close()
            self._channel = None
