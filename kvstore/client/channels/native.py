"""A channel over the crate: calls of one event loop in batches, over few HTTP/2 connections.

    call, call, call ──► one flush an iteration ──► the crate's thread ──► endpoints
    futures are set  ◄── one poll when there is something ◄──

The crate's thread owns sockets, TLS and HTTP/2 and never takes Python's lock. It connects to all
endpoints, distributes calls to the connected ones, round robin, and enforces the time limits.
"""

import asyncio
import signal
import ssl
from collections.abc import Callable, Sequence
from typing import Final

from kvstack.component import crate
from kvstack.component.errors import ConfigError
from kvstore.client.channel import ChannelStream, Metadata, Sink
from kvstore.client.endpoints import Endpoint
from kvstore.client.errors import CallFailedError
from kvstore.client.options import ClientOptions, ClientTls
from kvstore.config.checks import check_key_pair
from kvstore.errors import Code, KvstoreError
from kvstore.wire.rpc import METHODS

STREAM_AHEAD_BYTES_MAX: Final = 4 << 20  # of messages that a stream's reader has not consumed
_DONE_STEP_BYTES: Final = STREAM_AHEAD_BYTES_MAX // 8  # reported at a time
MESSAGE_COST: Final = 64  # bytes a message counts besides its own; the crate's number
# Files of the system's trusted certificates; the first that exists is used.
_SYSTEM_CA_FILES: Final = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/tls/cacert.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
)

Notice = Callable[[str], None]


class NativeChannel:
    """A Channel; see `kvstore.client.channel`."""

    def __init__(
        self,
        endpoints: Sequence[Endpoint],
        options: ClientOptions,
        on_notice: Notice | None = None,
    ) -> None:
        """Create the channel, not connected; on_notice gets log lines about connections."""
        if crate.Client is None:
            raise ConfigError(f"the native transport was not built: {crate.MISSING}")
        check_key_pair(options.tls.cert_file, options.tls.key_file)
        self._make: Final = crate.Client
        self._endpoints = list(endpoints)
        self._options: Final = options
        self._request_bytes_max: Final = options.request_bytes_max
        self._on_notice = on_notice
        self._last_id = 0
        self._replies: dict[int, asyncio.Future[bytes]] = {}
        self._streams: dict[int, _Stream] = {}
        self._is_flushing = False  # soon
        self._is_closed = False
        self._new_batch()

    def _new_batch(self) -> None:
        self._calls: list[tuple[int, int, bytes, float | None, Metadata | None]] = []
        self._opened: list[tuple[int, int, Metadata | None]] = []
        self._frames: list[tuple[int, bytes]] = []
        self._half_closed: list[int] = []
        self._gone: list[int] = []
        self._done: list[tuple[int, int]] = []

    def start(self) -> None:
        """Start the crate's thread, which connects to every endpoint."""
        self._loop = asyncio.get_running_loop()
        # Signals belong to the main thread: the crate's thread starts with all of them blocked.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            self._client = self._make(
                [method.path for method in METHODS],
                {
                    "dial_timeout_s": self._options.dial_timeout_s,
                    "keepalive_interval_s": self._options.keepalive_interval_s,
                    "keepalive_timeout_s": self._options.keepalive_timeout_s,
                    "keeps_idle_alive": self._options.keeps_idle_alive,
                    "reach_s": self._options.reach_s,
                    "response_bytes_max": self._options.response_bytes_max,
                    "stream_ahead_bytes_max": STREAM_AHEAD_BYTES_MAX,
                },
                _tls_columns(self._options.tls),
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        self._client.set_endpoints(self._endpoints)
        self._loop.add_reader(self._client.descriptor(), self._poll)

    async def call(
        self, method: int, body: bytes, limit_s: float | None, metadata: Metadata | None
    ) -> bytes:
        """Return the reply to a unary call; CallFailedError if there is none within limit_s."""
        if len(body) > self._request_bytes_max or self._is_closed:
            raise self._refusal(len(body))
        call_id = self._last_id = self._last_id + 1
        self._calls.append((call_id, method, body, limit_s, metadata))
        if not self._is_flushing:
            self._is_flushing = True
            self._loop.call_soon(self._flush)
        future: asyncio.Future[bytes] = self._loop.create_future()
        self._replies[call_id] = future
        try:
            return await future
        except asyncio.CancelledError:
            if self._replies.pop(call_id, None) is not None:
                self._gone.append(call_id)
                self._flush_soon()
            raise

    def open(self, method: int, metadata: Metadata | None, sink: Sink) -> ChannelStream:
        """Open a stream."""
        self._last_id += 1
        stream = self._streams[self._last_id] = _Stream(self, self._last_id, sink)
        self._opened.append((self._last_id, method, metadata))
        self._flush_soon()
        return stream

    def local_revision(self) -> int | None:
        """Return None: a remote store's revision needs a call."""
        return None

    @property
    def endpoint_count(self) -> int:
        """The number of endpoints."""
        return len(self._endpoints)

    async def replace(self, endpoints: Sequence[Endpoint]) -> None:
        """Use other endpoints; those that stay keep their connections."""
        self._endpoints = list(endpoints)
        self._client.set_endpoints(endpoints)

    async def close(self) -> None:
        """Close the channel; open calls fail with UNAVAILABLE."""
        if self._is_closed:
            return
        self._is_closed = True
        self._loop.remove_reader(self._client.descriptor())
        self._fail_all("the client was closed")
        if not await asyncio.to_thread(self._client.close):
            raise KvstoreError("the client's thread did not end")

    def _refusal(self, size_bytes: int) -> CallFailedError:
        if self._is_closed:
            return CallFailedError(Code.UNAVAILABLE, "the client was closed", False)
        sizes = f"({size_bytes} vs. {self._request_bytes_max})"
        text = f"trying to send message larger than max {sizes}"
        return CallFailedError(Code.RESOURCE_EXHAUSTED, text, False)

    # Calls into the crate.

    def _flush_soon(self) -> None:
        if not self._is_flushing and not self._is_closed:
            self._is_flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flushing = False
        calls, opened, frames = self._calls, self._opened, self._frames
        half_closed, gone, done = self._half_closed, self._gone, self._done
        self._new_batch()
        if not self._is_closed:
            self._client.flush(calls, opened, frames, half_closed, gone, done)

    def _poll(self) -> None:
        try:
            replies, frames, ends, notices = self._client.poll()
        except RuntimeError as error:
            self._loop.remove_reader(self._client.descriptor())
            self._fail_all(f"the client's thread failed: {error}")
            self._is_closed = True
            raise KvstoreError(f"the client's thread failed: {error}") from error
        futures = self._replies
        for call_id, body in replies:
            future = futures.pop(call_id, None)
            if future is not None and not future.done():
                future.set_result(body)
        streams = self._streams
        for stream_id, message in frames:
            if (stream := streams.get(stream_id)) is not None:
                stream.sink.on_message(message, b"")
        for ended_id, code, text, was_sent in ends:
            self._ended(ended_id, code, text, was_sent=was_sent)
        if self._on_notice is not None:
            for notice in notices:
                self._on_notice(notice)

    def _ended(self, ended_id: int, code: int, text: str, *, was_sent: bool) -> None:
        future = self._replies.pop(ended_id, None)
        if future is not None:
            if not future.done():
                future.set_exception(CallFailedError(code, text, was_sent))
            return
        stream = self._streams.pop(ended_id, None)
        if stream is not None:
            ended_well = code == Code.OK
            stream.sink.on_end(None if ended_well else CallFailedError(code, text, was_sent))

    def _fail_all(self, text: str) -> None:
        futures, self._replies = self._replies, {}
        for future in futures.values():
            if not future.done():
                future.set_exception(CallFailedError(Code.UNAVAILABLE, text, True))
        streams, self._streams = self._streams, {}
        for stream in streams.values():
            stream.sink.on_end(CallFailedError(Code.UNAVAILABLE, text, True))

    # For streams.

    def send(self, stream_id: int, message: bytes) -> None:
        """Send a message of a stream."""
        if stream_id in self._streams:
            self._frames.append((stream_id, message))
            self._flush_soon()

    def half_close(self, stream_id: int) -> None:
        """End the sending side of a stream."""
        self._half_closed.append(stream_id)
        self._flush_soon()

    def done_with(self, stream_id: int, size_bytes: int) -> None:
        """Report that so many more bytes of a stream's messages were consumed."""
        self._done.append((stream_id, size_bytes))
        self._flush_soon()

    def give_up(self, stream_id: int) -> None:
        """Cancel a stream."""
        if self._streams.pop(stream_id, None) is not None:
            self._gone.append(stream_id)
            self._flush_soon()


class _Stream:
    """One open stream."""

    __slots__ = ("_channel", "_done_bytes", "_id", "sink")

    def __init__(self, channel: NativeChannel, stream_id: int, sink: Sink) -> None:
        self._channel = channel
        self._id = stream_id
        self._done_bytes = 0  # not reported to the crate yet
        self.sink: Final = sink

    def send(self, message: bytes) -> None:
        self._channel.send(self._id, message)

    def half_close(self) -> None:
        self._channel.half_close(self._id)

    def done_with(self, message_bytes: int) -> None:
        self._done_bytes += message_bytes + MESSAGE_COST
        if self._done_bytes >= _DONE_STEP_BYTES:
            self._channel.done_with(self._id, self._done_bytes)
            self._done_bytes = 0

    def cancel(self) -> None:
        self._channel.give_up(self._id)


def _tls_columns(tls: ClientTls) -> dict[str, object]:
    """Return the settings under the crate's names."""
    return {
        "cert_file": tls.cert_file,
        "key_file": tls.key_file,
        "trusted_ca_files": [tls.trusted_ca_file] if tls.trusted_ca_file else system_ca_files(),
        "is_unverified": tls.is_unverified,
        "server_name": tls.server_name,
    }


def system_ca_files() -> list[str]:
    """Return the possible files of the system's trusted certificates, the likeliest first."""
    named = ssl.get_default_verify_paths().cafile  # including SSL_CERT_FILE
    return [*filter(None, (named,)), *_SYSTEM_CA_FILES]
