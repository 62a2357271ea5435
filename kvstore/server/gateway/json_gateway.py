"""The JSON gateway: a POST with a message as JSON becomes a call of the node.

    POST /v3/kv/put  {"key":"Zm9v","value":"YmFy"}   → 200 {"header":{...}}
                     {"key":5}                       → 400 {"code":3,"message":"proto: ..."}
    POST /v3/watch   {"create_request":{...}} {...}  → 200 {"result":{...}}\\n{"result":{...}}\\n

A stream's response has one JSON object a line; a stream that fails ends with {"error":{...}}, and
the status is the error's if nothing was sent before. The body of a stream is read while it is
answered. Where etcd would send no response at all (to a stream whose first message is invalid),
this sends the error.

The methods that the node serves are an argument; others are answered as gRPC answers unknown
methods.
"""

import asyncio
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Final, TypeVar

from google.protobuf.message import Message

from kvstore.batch import HttpHeaders
from kvstore.errors import Code
from kvstore.http.exchange import PageRequest, Responder
from kvstore.runtime.local_client import CallRefusedError, LocalClient, LocalStream
from kvstore.server.gateway.call_options import CallOptions, call_options
from kvstore.server.gateway.json_decode import decode
from kvstore.server.gateway.json_encode import encode, encode_chunk, encode_status
from kvstore.server.gateway.json_scan import JsonError, ValueScanner
from kvstore.server.gateway.routes import ROUTES, Route
from kvstore.wire import rpc
from kvstore.wire.rpc import Kind

T = TypeVar("T")

HTTP_STATUS: Final[dict[int, int]] = {
    Code.OK: 200,
    Code.CANCELED: 499,
    Code.UNKNOWN: 500,
    Code.INVALID_ARGUMENT: 400,
    Code.DEADLINE_EXCEEDED: 504,
    Code.NOT_FOUND: 404,
    Code.ALREADY_EXISTS: 409,
    Code.PERMISSION_DENIED: 403,
    Code.RESOURCE_EXHAUSTED: 429,
    Code.FAILED_PRECONDITION: 400,
    Code.ABORTED: 409,
    Code.OUT_OF_RANGE: 400,
    Code.UNIMPLEMENTED: 501,
    Code.INTERNAL: 500,
    Code.UNAVAILABLE: 503,
    Code.DATA_LOSS: 500,
    Code.UNAUTHENTICATED: 401,
}
_JSON: Final = ("Content-Type", "application/json")
_RESPONSE_HEADERS: Final[HttpHeaders] = [_JSON, ("Grpc-Metadata-Content-Type", "application/grpc")]
_FORM: Final = "application/x-www-form-urlencoded"
_LARGE_BYTES: Final = 128 << 10
_JSON_SLACK_BYTES: Final = 64 << 10  # names, quotes and white space around a request's base64


class JsonGateway:
    """Serves every path under /v3/."""

    def __init__(
        self, client: LocalClient, methods: Collection[int], request_bytes_max: int
    ) -> None:
        """Call the node through client; refuse messages over request_bytes_max, as gRPC does."""
        self._client = client
        self._methods = frozenset(methods)
        self._request_bytes_max = request_bytes_max
        self.body_bytes_max: Final = body_bytes_max(request_bytes_max)

    async def serve(self, request: PageRequest, respond: Responder) -> None:
        """Answer one request."""
        method = request.method
        override = request.header("x-http-method-override")
        is_form = method == "POST" and request.header("content-type") == _FORM
        if override and is_form:
            method = override.upper()
        try:
            route = self._route(request.path, method)
            context = call_options(request.headers)
            if route.kind is Kind.BIDI:
                await self._bidi(route, context, request, respond)
                return
            body = await self._body(route, request)
            if override and is_form:  # parsing the form has consumed the body
                body = b""
            if route.kind is Kind.UNARY:
                await self._unary(route, context, body, respond)
            else:
                await self._server_stream(route, context, body, respond)
        except CallRefusedError as refused:
            await _refuse(respond, refused)

    def _route(self, path: str, method: str) -> Route:
        route = ROUTES.get(path)
        if route is None:
            raise CallRefusedError(Code.NOT_FOUND, "Not Found")
        if method != "POST":
            raise CallRefusedError(Code.UNIMPLEMENTED, "Method Not Allowed")
        if route.method_id not in self._methods:
            unknown = rpc.METHODS[route.method_id]
            raise CallRefusedError(
                Code.UNIMPLEMENTED, f"unknown method {unknown.name} for service {unknown.service}"
            )
        return route

    # Requests.

    async def _body(self, route: Route, request: PageRequest) -> bytes:
        """Return the first message of the body in protobuf's encoding; an empty body is {}."""
        scanner = ValueScanner(self.body_bytes_max)
        value = None
        try:
            async for piece in request.body:
                scanner.feed(piece)
                value = await in_thread_if_large(len(piece), scanner.take)
                if value is not None:
                    break
            else:
                value = scanner.finish()
            return b"" if value is None else await self.encoded(route, value)
        except JsonError as error:
            raise CallRefusedError(Code.INVALID_ARGUMENT, str(error)) from None

    async def encoded(self, route: Route, value: bytes) -> bytes:
        """Return one JSON value in protobuf's encoding; raises JsonError and CallRefusedError."""
        message = route.request()
        await in_thread_if_large(len(value), lambda: decode(value, message))
        encoded = message.SerializeToString()
        if len(encoded) > self._request_bytes_max:
            raise CallRefusedError(
                Code.RESOURCE_EXHAUSTED,
                f"grpc: received message larger than max ({len(encoded)} vs. "
                f"{self._request_bytes_max})",
            )
        return encoded

    # The three shapes of a call.

    async def _unary(
        self, route: Route, context: CallOptions, body: bytes, respond: Responder
    ) -> None:
        reply = await self._client.call(
            route.method_id, body, context.metadata, timeout_s=context.timeout_s, for_client=True
        )
        text = await _as_json(route.response, reply)
        await respond.whole(200, _RESPONSE_HEADERS, text.encode())

    async def _server_stream(
        self, route: Route, context: CallOptions, body: bytes, respond: Responder
    ) -> None:
        async with self._client.open(
            route.method_id, context.metadata, request=body, for_client=True
        ) as stream:
            await _forward(stream, route.response, context.timeout_s, respond)

    async def _bidi(
        self, route: Route, context: CallOptions, request: PageRequest, respond: Responder
    ) -> None:
        async with self._client.open(route.method_id, context.metadata, for_client=True) as stream:
            sender = _Sender(self, route, request, stream)
            task = asyncio.create_task(sender.run(), name="gateway body")
            try:
                await _forward(stream, route.response, context.timeout_s, respond, sender)
            finally:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task


def body_bytes_max(request_bytes_max: int) -> int:
    """Return the largest size of a body for a message of request_bytes_max.

    Base64 takes four bytes for three, and some JSON writers escape every slash of it.
    """
    return 2 * request_bytes_max + _JSON_SLACK_BYTES


class _Sender:
    """Passes the messages of a body to a stream as they arrive."""

    def __init__(
        self, gateway: JsonGateway, route: Route, request: PageRequest, stream: LocalStream
    ) -> None:
        self._gateway = gateway
        self._route = route
        self._request = request
        self._stream = stream
        self.refused: CallRefusedError | None = None
        self.answering: asyncio.Timeout | None = None
        """Expires when the body is refused; None before and after the response is sent."""

    async def run(self) -> None:
        """Send until the body ends; an error in it ends the stream."""
        try:
            await self._send_all()
        except JsonError as error:
            self._fail(Code.INVALID_ARGUMENT, f"Failed to decode request: {error}")
        except CallRefusedError as refused:
            self._fail(refused.code, refused.text)
        else:
            self._stream.half_close()

    async def _send_all(self) -> None:
        scanner = ValueScanner(self._gateway.body_bytes_max)
        async for piece in self._request.body:
            scanner.feed(piece)
            while (value := await in_thread_if_large(len(piece), scanner.take)) is not None:
                await self._send(value)
        last = scanner.finish()
        if last is not None:
            await self._send(last)

    async def _send(self, value: bytes) -> None:
        await self._stream.send(await self._gateway.encoded(self._route, value))

    def _fail(self, code: int, text: str) -> None:
        self.refused = CallRefusedError(code, text)
        # The call may have ended at the same moment, or its own time may be up.
        if self.answering is not None and not self.answering.expired():
            self.answering.reschedule(asyncio.get_running_loop().time())


async def _forward(
    stream: LocalStream,
    response: type[Message],
    timeout_s: float | None,
    respond: Responder,
    sender: _Sender | None = None,
) -> None:
    """Send each message of the stream as a line, then its error if there is one."""
    is_started = False
    refused: CallRefusedError | None = None
    try:
        async with asyncio.timeout(timeout_s) as answering:
            if sender is not None:
                sender.answering = answering
            async for message in stream:
                if not is_started:
                    is_started = True
                    await respond.start(200, _RESPONSE_HEADERS)
                text = await _as_json(response, message)
                await respond.write(encode_chunk("result", text))
    except TimeoutError:
        refused = _deadline_exceeded()
        if sender is not None and sender.refused is not None:
            refused = sender.refused
    except CallRefusedError as error:
        refused = error
    finally:
        if sender is not None:
            sender.answering = None
    if not is_started:
        await respond.start(
            200 if refused is None else HTTP_STATUS.get(refused.code, 500),
            [] if refused is None else [_JSON],
        )
    if refused is not None:
        status = encode_status(refused.code, refused.text)
        await respond.write(encode_chunk("error", status))
    await respond.finish()


async def _as_json(response: type[Message], message: bytes) -> str:
    return await in_thread_if_large(len(message), lambda: encode(response.FromString(message)))


async def in_thread_if_large(size_bytes: int, work: Callable[[], T]) -> T:
    """Run work on a message of this size; in a thread if it would block the loop for long."""
    return work() if size_bytes < _LARGE_BYTES else await asyncio.to_thread(work)


def _deadline_exceeded() -> CallRefusedError:
    return CallRefusedError(Code.DEADLINE_EXCEEDED, "context deadline exceeded")


async def _refuse(respond: Responder, refused: CallRefusedError) -> None:
    headers = [_JSON]
    if refused.code == Code.UNAUTHENTICATED:
        headers.append(("Www-Authenticate", refused.text))
    body = encode_status(refused.code, refused.text).encode()
    await respond.whole(HTTP_STATUS.get(refused.code, 500), headers, body)
