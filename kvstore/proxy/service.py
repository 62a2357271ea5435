"""The calls of the proxy's clients: which service handles them, and how errors are returned.

    KV                      cache, namespace, order        MemberList   the registered proxies
    Watch, LeaseKeepAlive   shared streams                 the others   passed unchanged

An error of the cluster reaches the client with its code and text.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Final

from google.protobuf.json_format import MessageToJson
from google.protobuf.message import DecodeError

from kvstack.component.logger import Logger
from kvstore.batch import Metadata, ServiceCall
from kvstore.node.router import MALFORMED_REQUEST
from kvstore.proxy.caching_kv import CachingKv
from kvstore.proxy.client_streams import StreamTable
from kvstore.proxy.counters import ProxyCounters
from kvstore.proxy.keep_alives import KeepAliveService
from kvstore.proxy.namespace import Namespace
from kvstore.proxy.registration import ProxyRegistration
from kvstore.proxy.upstream import Upstream
from kvstore.proxy.watch.watch_service import WatchService
from kvstore.runtime.local_client import CallRefusedError
from kvstore.runtime.side_loop import SideLoop
from kvstore.wire import rpc
from kvstore.wire.gen import rpc_pb2 as pb
from kvstore.wire.rpc import METHODS, Kind

_NOT_SERVED: Final = frozenset({rpc.HEALTH_CHECK, rpc.HEALTH_LIST, rpc.HEALTH_WATCH})
SERVED: Final = frozenset(method.id for method in METHODS) - _NOT_SERVED

_Unary = Callable[[bytes, Metadata], Awaitable[bytes]]


class ProxyService:
    """Serves every call of the port."""

    def __init__(
        self,
        side: SideLoop,
        upstream: Upstream,
        kv: CachingKv,
        watch: WatchService,
        leases: KeepAliveService,
        members: ProxyRegistration,
        namespace: Namespace | None,
        counters: ProxyCounters,
        logger: Logger,
        *,
        is_logging: bool,
    ) -> None:
        self._side = side
        self._upstream = upstream
        self._kv = kv
        self._namespace = namespace
        self._counters = counters
        self._logger = logger
        self._is_logging = is_logging
        self.table: Final = StreamTable(side)
        self._streams = {rpc.WATCH: watch.serve, rpc.LEASE_KEEP_ALIVE: leases.serve}
        self._unary: dict[int, _Unary] = {
            **kv.methods,
            rpc.MEMBER_LIST: members.list,
            rpc.LEASE_TIME_TO_LIVE: self._time_to_live,
        }

    def serve(self, call: ServiceCall) -> Coroutine[None, None, None]:
        """Return the coroutine that serves a call; frames of a stream are accepted from now on."""
        method = METHODS[call[1]]
        self._counters.count_start(method.id)
        if method.kind == Kind.BIDI:
            return self._bidi(call)
        if method.kind == Kind.SERVER_STREAM:
            return self._server_stream(call)
        return self._unary_call(call)

    async def _unary_call(self, call: ServiceCall) -> None:
        call_id, method, body, metadata = call
        self._log(method, "request", body)
        code, answer = 0, b""
        try:
            serve = self._unary.get(method)
            if serve is None:
                answer = await self._upstream.call(method, body, metadata)
            else:
                answer = await serve(body, metadata)
        except DecodeError:
            code, answer = MALFORMED_REQUEST.code, MALFORMED_REQUEST.text.encode()
        except CallRefusedError as refused:
            code, answer = refused.code, refused.text.encode()
        self._counters.count_end(method, code)
        if not code:
            self._log(method, "response", answer)
        self._side.reply(call_id, code, answer)

    async def _server_stream(self, call: ServiceCall) -> None:
        call_id, method, body, _ = call
        self._log(method, "request", body)
        stream = self.table.open(call)
        try:
            serving = self._forward(stream.send_within_window, call)
            await self._end_with(call_id, method, serving)
        finally:
            self.table.close(stream)

    async def _forward(self, send: Callable[[bytes], Awaitable[None]], call: ServiceCall) -> None:
        _, method, body, metadata = call
        async for message in self._responses(method, body, metadata):
            await send(message)

    def _responses(self, method: int, body: bytes, metadata: Metadata) -> AsyncIterator[bytes]:
        if method == rpc.RANGE_STREAM:
            return self._kv.range_stream(body, metadata)
        return self._upstream.server_stream(method, body, metadata)

    def _bidi(self, call: ServiceCall) -> Coroutine[None, None, None]:
        stream = self.table.open(call)

        async def serve() -> None:
            try:
                await self._end_with(call[0], call[1], self._streams[call[1]](stream))
            finally:
                self.table.close(stream)

        return serve()

    async def _end_with(self, call_id: int, method: int, serving: Awaitable[None]) -> None:
        """Wait for the coroutine that serves a stream, and end the stream with its result."""
        code, text = 0, ""
        try:
            await serving
        except DecodeError:
            code, text = MALFORMED_REQUEST
        except CallRefusedError as refused:
            code, text = refused.code, refused.text
        self._counters.count_end(method, code)
        self._side.end(call_id, code, text)

    async def _time_to_live(self, body: bytes, metadata: Metadata) -> bytes:
        answer = await self._upstream.call(rpc.LEASE_TIME_TO_LIVE, body, metadata)
        if self._namespace is None:
            return answer
        response = pb.LeaseTimeToLiveResponse.FromString(answer)
        self._namespace.strip_lease(response)
        return response.SerializeToString()

    def _log(self, method_id: int, side: str, body: bytes) -> None:
        if not self._is_logging:
            return
        method = METHODS[method_id]
        kind = method.request if side == "request" else method.response
        try:
            content = MessageToJson(kind.FromString(body), indent=None)
        except (DecodeError, ValueError) as error:
            content = f"error when converting payload to logging json: {error}"
        verb = "received" if side == "request" else "returned response"
        fields: dict[str, object] = {
            f"grpc.{side}.content": content,
            "grpc.service": method.service,
            "grpc.method": method.name,
        }
        self._logger.info(f"{verb} payload logged as grpc.{side}.content field", **fields)
