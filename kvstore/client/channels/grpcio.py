"""A channel over grpcio, for where there is no crate.

    call ──► the next endpoint that is connected ──► reply, or why there is none

Each endpoint has its own grpcio channel, so that it is known which of them are connected: a call
waits for one of those, and if none connects in time it was certainly not sent. grpcio cannot skip
the verification of a certificate, cannot accept one that is its own authority, and does not support
P-521 keys.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from kvstack.component.errors import ConfigError
from kvstore.client.channel import ChannelStream, Metadata, Sink
from kvstore.client.endpoints import Endpoint
from kvstore.client.errors import CallFailedError
from kvstore.client.options import ClientOptions
from kvstore.errors import Code
from kvstore.transport.grpcio import INT32_MAX, grpc
from kvstore.transport.grpcio.dial import DialTls, Option, dial_plan
from kvstore.wire.rpc import METHODS, Kind

STREAM_AHEAD_BYTES_MAX: Final = 4 << 20  # of messages that a stream's reader has not consumed
_BACKOFF_OPTIONS: Final[tuple[Option, ...]] = (
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 3000),
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),  # connections of its own
)
# grpcio's texts for: no connection, so nothing was sent.
_NOT_SENT: Final = (
    "failed to connect to all addresses",
    "connections to all backends failing",
    "DNS resolution failed",
    "Could not contact DNS servers",
    "empty address list",
)
_STREAM_LOST: Final = "Stream removed ("  # grpcio's prefix for any end of a call
_CODES: Final = {status: Code(status.value[0]) for status in grpc.StatusCode}
_READY: Final = grpc.ChannelConnectivity.READY
_FAILED: Final = grpc.ChannelConnectivity.TRANSIENT_FAILURE
_PAUSE_S: Final = 0.1
_PAUSE_MAX_S: Final = 3.0

Notice = Callable[[str], None]
_Unary: TypeAlias = "grpc.aio.UnaryUnaryMultiCallable[bytes, bytes]"
_Bidi: TypeAlias = "grpc.aio.StreamStreamMultiCallable[bytes, bytes]"
_ServerStream: TypeAlias = "grpc.aio.UnaryStreamMultiCallable[bytes, bytes]"


class _Subchannel:
    """One endpoint, its channel and the callables made of it."""

    def __init__(self, endpoint: Endpoint, options: Sequence[Option], tls: DialTls) -> None:
        self.endpoint: Final = endpoint
        self._options = options
        self._tls = tls
        self._calls: dict[int, _Unary] = {}
        self.channel: grpc.aio.Channel | None = None
        self.fault = ""

    async def dial(self) -> None:
        """Make the channel; ConfigError for files, OSError for a certificate to fetch."""
        if self._tls.is_unverified:
            plan = await asyncio.to_thread(dial_plan, self.endpoint.name, self._tls)
        else:
            plan = dial_plan(self.endpoint.name, self._tls)
        options = (*plan.options, *self._options)
        if plan.credentials is None:
            self.channel = grpc.aio.insecure_channel(plan.target, options)
        else:
            self.channel = grpc.aio.secure_channel(plan.target, plan.credentials, options)
        self._calls.clear()

    @property
    def is_ready(self) -> bool:
        return self.channel is not None and self.channel.get_state(True) is _READY

    def unary(self, method: int) -> _Unary:
        found = self._calls.get(method)
        if found is None:
            assert self.channel is not None
            found = self._calls[method] = self.channel.unary_unary(METHODS[method].path)
        return found

    async def close(self) -> None:
        if self.channel is not None:
            await self.channel.close()


class GrpcioChannel:
    """A Channel; see `kvstore.client.channel`."""

    def __init__(
        self,
        endpoints: Sequence[Endpoint],
        options: ClientOptions,
        on_notice: Notice | None = None,
    ) -> None:
        """Create the channel, not connected; on_notice gets log lines about connections."""
        tls = options.tls
        self._tls: Final = DialTls(
            tls.cert_file,
            tls.key_file,
            tls.trusted_ca_file,
            is_unverified=tls.is_unverified,
            is_enabled=tls.is_given,
        )
        self._options: Final = _grpc_options(options)
        self._request_bytes_max: Final = options.request_bytes_max
        self._reach_s: Final = options.reach_s
        self._on_notice = on_notice
        self._subchannels = [self._subchannel(each) for each in endpoints]
        self._turn = 0
        self._changed = asyncio.Event()
        self._watching: dict[_Subchannel, asyncio.Task[None]] = {}
        self._streams: set[_Stream] = set()
        self._is_closed = False

    def _subchannel(self, endpoint: Endpoint) -> _Subchannel:
        return _Subchannel(endpoint, self._options, self._tls)

    def start(self) -> None:
        """Begin to connect to every endpoint."""
        self._loop = asyncio.get_running_loop()
        for subchannel in self._subchannels:
            self._watching[subchannel] = self._loop.create_task(
                self._follow(subchannel), name="endpoint"
            )

    async def _follow(self, subchannel: _Subchannel) -> None:
        """Keep an endpoint connected, and wake waiters when it is."""
        pause_s = _PAUSE_S
        while subchannel.channel is None:
            try:
                await subchannel.dial()
            except (OSError, ConfigError) as error:
                subchannel.fault = str(error)
                self._tell(f"cannot connect to {subchannel.endpoint.name}: {error}")
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, _PAUSE_MAX_S)
        was_ready = False
        while True:
            channel = subchannel.channel
            assert channel is not None
            state = channel.get_state(try_to_connect=True)
            if state is _FAILED and self._tls.is_unverified:
                await self._dial_again(subchannel)  # it may serve another certificate by now
                continue
            if state is _READY:
                self._changed.set()
            if (state is _READY) != was_ready:
                was_ready = state is _READY
                what = "connected to" if was_ready else "disconnected from"
                self._tell(f"{what} {subchannel.endpoint.name}")
            await channel.wait_for_state_change(state)

    async def _dial_again(self, subchannel: _Subchannel) -> None:
        """Dial again with the server's current certificate, where it is not verified."""
        await asyncio.sleep(_PAUSE_S)
        before = subchannel.channel
        try:
            await subchannel.dial()
        except (OSError, ConfigError) as error:
            subchannel.fault = str(error)
            return
        if before is not None:
            await before.close()

    def _tell(self, notice: str) -> None:
        if self._on_notice is not None:
            self._on_notice(notice)

    async def call(
        self, method: int, body: bytes, limit_s: float | None, metadata: Metadata | None
    ) -> bytes:
        """Return the reply to a unary call; CallFailedError if there is none within limit_s."""
        if len(body) > self._request_bytes_max:
            sizes = f"({len(body)} vs. {self._request_bytes_max})"
            text = f"trying to send message larger than max {sizes}"
            raise CallFailedError(Code.RESOURCE_EXHAUSTED, text, False)
        subchannel = self._next()
        if subchannel is None:
            began = self._loop.time()
            subchannel = await self._wait_for_one(limit_s)
            if limit_s is not None:
                limit_s = max(limit_s - (self._loop.time() - began), 0.001)
        try:
            reply = await subchannel.unary(method)(body, timeout=limit_s, metadata=metadata)
        except grpc.aio.AioRpcError as error:
            raise _failure(error) from None
        except grpc.aio.InternalError:
            text = "the call cannot be started: its metadata may not be ASCII"
            raise CallFailedError(Code.INVALID_ARGUMENT, text, False) from None
        except asyncio.CancelledError:
            if self._is_closed:
                text = "the client was closed"
                raise CallFailedError(Code.UNAVAILABLE, text, True) from None
            raise
        if not isinstance(reply, bytes):
            raise CallFailedError(Code.INTERNAL, "no reply to a call", True)
        return reply

    def _next(self) -> _Subchannel | None:
        """Return the next endpoint that is connected, in turn; None if none is."""
        self._turn += 1
        count = len(self._subchannels)
        for at in range(count):
            subchannel = self._subchannels[(self._turn + at) % count]
            if subchannel.is_ready:
                return subchannel
        return None

    async def _wait_for_one(self, limit_s: float | None) -> _Subchannel:
        """Return the next endpoint that is connected, once one is."""
        limits = [each for each in (limit_s, self._reach_s or None) if each is not None]
        try:
            async with asyncio.timeout(min(limits, default=None)):
                while (subchannel := self._next()) is None:
                    if self._is_closed:
                        raise CallFailedError(Code.UNAVAILABLE, "the client was closed", False)
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            faults = [
                f"{each.endpoint.name}: {each.fault}" for each in self._subchannels if each.fault
            ]
            named = "; ".join(faults) or ", ".join(each.endpoint.name for each in self._subchannels)
            text = f"no endpoint could be reached: {named}"
            raise CallFailedError(Code.UNAVAILABLE, text, False) from None
        return subchannel

    def open(self, method: int, metadata: Metadata | None, sink: Sink) -> ChannelStream:
        """Open a stream."""
        stream = _Stream(method, sink)
        self._streams.add(stream)
        stream.task = self._loop.create_task(self._run(stream, metadata), name="stream")
        stream.task.add_done_callback(lambda _: self._streams.discard(stream))
        return stream

    async def _run(self, stream: "_Stream", metadata: Metadata | None) -> None:
        """Carry a stream to its end."""
        try:
            subchannel = self._next() or await self._wait_for_one(None)
        except CallFailedError as failure:
            stream.end(failure)
            return
        assert subchannel.channel is not None
        await stream.run(subchannel.channel, metadata)

    def local_revision(self) -> int | None:
        """Return None: a remote store's revision needs a call."""
        return None

    @property
    def endpoint_count(self) -> int:
        """The number of endpoints."""
        return len(self._subchannels)

    async def replace(self, endpoints: Sequence[Endpoint]) -> None:
        """Use other endpoints; those that stay keep their connections."""
        unused = {each.endpoint: each for each in self._subchannels}
        self._subchannels = [
            unused.pop(each) if each in unused else self._subchannel(each) for each in endpoints
        ]
        for subchannel in self._subchannels:
            if subchannel not in self._watching:
                self._watching[subchannel] = self._loop.create_task(self._follow(subchannel))
        for gone in unused.values():
            self._watching.pop(gone).cancel()
            await gone.close()

    async def close(self) -> None:
        """Close the channel; open calls fail with UNAVAILABLE."""
        self._is_closed = True
        self._changed.set()
        tasks = [*self._watching.values(), *(each.task for each in self._streams if each.task)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for subchannel in self._subchannels:
            await subchannel.close()


class _Stream:
    """One open stream: the messages to send, and the backlog of its reader."""

    def __init__(self, method: int, sink: Sink) -> None:
        self._method = METHODS[method]
        self._sink = sink
        self._outgoing: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._ahead_bytes = 0
        self._caught_up = asyncio.Event()
        self._is_over = False
        self.task: asyncio.Task[None] | None = None

    # For its user.

    def send(self, message: bytes) -> None:
        self._outgoing.put_nowait(message)

    def half_close(self) -> None:
        self._outgoing.put_nowait(None)

    def done_with(self, message_bytes: int) -> None:
        self._ahead_bytes -= message_bytes
        if self._ahead_bytes < STREAM_AHEAD_BYTES_MAX:
            self._caught_up.set()

    def cancel(self) -> None:
        self._is_over = True
        if self.task is not None:
            self.task.cancel()

    # For the channel.

    async def run(self, channel: grpc.aio.Channel, metadata: Metadata | None) -> None:
        """Read to the end and report it to the sink."""
        try:
            if self._method.kind is Kind.BIDI:
                bidi: _Bidi = channel.stream_stream(self._method.path)
                call = bidi(metadata=metadata)
                sending = asyncio.create_task(self._send(call), name="stream's messages")
                try:
                    await self._read(call)
                finally:
                    sending.cancel()
                    call.cancel()
                    await asyncio.gather(sending, return_exceptions=True)
            else:
                ask: _ServerStream = channel.unary_stream(self._method.path)
                request = await self._outgoing.get()
                answers = ask(request or b"", metadata=metadata)
                try:
                    await self._read(answers)
                finally:
                    answers.cancel()
        except grpc.aio.AioRpcError as error:
            self.end(_failure(error))
        else:
            self.end(None)

    async def _read(
        self,
        call: "grpc.aio.StreamStreamCall[bytes, bytes] | grpc.aio.UnaryStreamCall[bytes, bytes]",
    ) -> None:
        async for message in call:
            if self._is_over:
                return
            self._ahead_bytes += len(message)
            self._sink.on_message(message, b"")
            while self._ahead_bytes >= STREAM_AHEAD_BYTES_MAX:
                self._caught_up.clear()
                await self._caught_up.wait()

    async def _send(self, call: "grpc.aio.StreamStreamCall[bytes, bytes]") -> None:
        """Send the queued messages until the queue is closed or the stream has ended."""
        try:
            while (message := await self._outgoing.get()) is not None:
                await call.write(message)
            await call.done_writing()
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            return  # the stream has ended: its reader gets the error

    def end(self, failure: CallFailedError | None) -> None:
        """Report the end to the sink, once."""
        if not self._is_over:
            self._is_over = True
            self._sink.on_end(failure)


def _failure(error: grpc.aio.AioRpcError) -> CallFailedError:
    text = error.details() or ""
    code = _CODES[error.code()]
    if text.startswith(_STREAM_LOST):
        text = text.removeprefix(_STREAM_LOST).removesuffix(")")
        if code in (Code.UNKNOWN, Code.INTERNAL):
            code = Code.UNAVAILABLE  # the connection under it broke
    was_sent = not (code == Code.UNAVAILABLE and text.startswith(_NOT_SENT))
    return CallFailedError(code, text, was_sent)


def _grpc_options(options: ClientOptions) -> tuple[Option, ...]:
    channel_options: list[Option] = [
        *_BACKOFF_OPTIONS,
        ("grpc.min_reconnect_backoff_ms", max(int(options.dial_timeout_s * 1000), 1)),
        ("grpc.max_send_message_length", min(options.request_bytes_max, INT32_MAX)),
        ("grpc.max_receive_message_length", min(options.response_bytes_max, INT32_MAX)),
    ]
    if options.keepalive_interval_s:
        channel_options.append(
            ("grpc.keepalive_time_ms", max(int(options.keepalive_interval_s * 1000), 1))
        )
        if options.keeps_idle_alive:
            channel_options.append(("grpc.keepalive_permit_without_calls", 1))
        timeout_ms = max(int(options.keepalive_timeout_s * 1000), 1)
        channel_options.append(("grpc.keepalive_timeout_ms", timeout_ms))
        channel_options.append(
            ("grpc.http2.ping_timeout_ms", timeout_ms)
        )  # else a minute, whatever is above
        channel_options.append(
            ("grpc.http2.max_pings_without_data", 0)
        )  # no limit: watches send nothing
    if options.tls.server_name:
        channel_options.append(("grpc.ssl_target_name_override", options.tls.server_name))
    return tuple(channel_options)
