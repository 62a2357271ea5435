"""Which call of a client goes which way through the proxy, and how its errors get back.

    KV                      cache, namespace, order        MemberList   the proxies
    Watch, LeaseKeepAlive   shared streams                 the rest     as it is

A refusal of the cluster reaches the client with its own code and text.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Final

from google.protobuf.json_format import MessageToJson
from google.protobuf.message import DecodeError

from kvstore.batch import Metadata, ServiceCall
from kvstore.errors import Code
from kvstore.logger import Logger
from kvstore.node.router import MALFORMED_REQUEST
from kvstore.proxy.client_streams import StreamTable
from kvstore.proxy.counts import Counts
from kvstore.proxy.kv import KvProxy
from kvstore.proxy.leases import LeaseProxy
from kvstore.proxy.members import ProxyMembers
from kvstore.proxy.namespace import Namespace
from kvstore.proxy.upstream import Upstream
from kvstore.proxy.watch import WatchProxy
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
        kv: KvProxy,
        watch: WatchProxy,
        leases: LeaseProxy,
        members: ProxyMembers,
        namespace: Namespace | None,
        counts: Counts,
        logger: Logger,
        *,
        is_logging: bool,
    ) -> None:
        self._side = side
        self._upstream = upstream
        self._kv = kv
        self._namespace = namespace
        self._counts = counts
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
        """Return what serves one call; the frames of a stream are taken from now on."""
        method = METHODS[call[1]]
        self._counts.begun(method.id)
        if method.kind == Kind.BIDI:
            return self._stream(call)
        if method.kind == Kind.SERVER_STREAM:
            return self._many(call)
        return self._one(call)

    async def _one(self, call: ServiceCall) -> None:
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
        self._counts.ended(method, _name(code))
        if not code:
            self._log(method, "response", answer)
        self._side.reply(call_id, code, answer)

    async def _many(self, call: ServiceCall) -> None:
        call_id, method, body, _ = call
        self._log(method, "request", body)
        stream = self.table.open(call)
        try:
            await self._finished(call_id, method, self._passed_on(stream.send_with_room, call))
        finally:
            self.table.close(stream)

    async def _passed_on(self, send: Callable[[bytes], Awaitable[None]], call: ServiceCall) -> None:
        _, method, body, metadata = call
        async for message in self._answers(method, body, metadata):
            await send(message)

    def _answers(self, method: int, body: bytes, metadata: Metadata) -> AsyncIterator[bytes]:
        if method == rpc.RANGE_STREAM:
            return self._kv.range_stream(body, metadata)
        return self._upstream.server_stream(method, body, metadata)

    def _stream(self, call: ServiceCall) -> Coroutine[None, None, None]:
        stream = self.table.open(call)

        async def serve() -> None:
            try:
                await self._finished(call[0], call[1], self._streams[call[1]](stream))
            finally:
                self.table.close(stream)

        return serve()

    async def _finished(self, call_id: int, method: int, work: Awaitable[None]) -> None:
        """Await what serves a stream, and end the stream as it ended."""
        code, text = 0, ""
        try:
            await work
        except DecodeError:
            code, text = MALFORMED_REQUEST
        except CallRefusedError as refused:
            code, text = refused.code, refused.text
        self._counts.ended(method, _name(code))
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


def _name(code: int) -> str:
    return "OK" if not code else Code(code).name.title().replace("_", "")
