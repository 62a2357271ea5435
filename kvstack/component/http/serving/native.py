"""The transport over the crate: HTTP/1.1, HTTP/2 and TLS in a thread without Python's lock.

    crate's thread ──a byte in a pipe──► the loop's reader ──► poll ─► handlers ─► flush

The pipe is written to only while the loop sleeps on it: under load, batches are polled one after
another; an idle server costs nothing. A batch of many requests is handled in slices, one per loop
iteration, so that other callbacks run, too. What tasks write between batches is flushed once per
iteration.
"""

import asyncio
import dataclasses
import os
import signal
from collections.abc import Sequence
from typing import Final, TypeAlias

from typing_extensions import override

from kvstack.component.crate import MISSING, HttpServer
from kvstack.component.crate import is_available as is_available
from kvstack.component.errors import ComponentError, ConfigError
from kvstack.component.http.serving.listeners import KeyPair, Listener, Pem, ServerTls
from kvstack.component.http.serving.transport import (
    Arrival,
    Connection,
    Headers,
    HttpTransport,
    Sink,
)
from kvstack.component.net import addresses
from kvstack.component.net.tls_errors import go_error_text

_Progress: TypeAlias = tuple[list[tuple[int, bytes]], list[int], list[int], list[int]]
_STOP_SLACK_S: Final = 5.0  # beyond the grace period
_SLICE: Final = 64  # requests handled in one iteration
_ASSEMBLING_BYTES_MAX: Final = 256 << 20  # of bodies read ahead of handlers, of all connections
_OPTIONS: Final = {
    "assembling_bytes_max": _ASSEMBLING_BYTES_MAX,
    # Limits of the queues between the crate's thread and the loop.
    "calls_max": 1024,
    "bytes_max": 16 << 20,
    "waiting_calls_max": 16_384,
    "waiting_bytes_max": 64 << 20,
    "stream_frames_max": 1024,
    "stream_bytes_max": 4 << 20,
}


class NativeTransport(HttpTransport):
    """See `kvstack.component.http.serving.transport`."""

    def __init__(self, listeners: Sequence[Listener]) -> None:
        self._listeners = listeners
        self._crate: HttpServer | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._sink: Sink | None = None
        self._deferred: tuple[Sequence[Arrival], _Progress] | None = None  # polled, not delivered
        self._is_flush_due = False
        self._stopped: asyncio.Future[None] | None = None

    @override
    async def start(self, sink: Sink) -> list[str]:
        if not is_available():
            raise ConfigError(f"the native transport was not built: {MISSING}")
        settings: list[ServerTls] = []
        bindings = [_address(listener, settings) for listener in self._listeners]
        # Signals belong to the loop's thread: the crate's thread starts with all of them blocked.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            crate = HttpServer(
                bindings, [_tls(each) for each in settings], _OPTIONS, self._make_connection
            )
        except OSError as error:
            raise _bind_error(self._listeners[int(error.filename or 0)], error) from error
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        self._crate = crate
        self._sink = sink
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(crate.descriptor(), self._run_batch)
        self._run_batch()
        return [
            addresses.bound_url(listener.url, port) if port else listener.url
            for listener, port in zip(self._listeners, crate.ports, strict=True)
        ]

    def _make_connection(
        self,
        index: int,
        peer: str,
        is_tls: bool,  # noqa: FBT001 - the crate passes it by position
        protocol: str,
        server_name: str,
        certificates: tuple[bytes, ...],
        verified_by: tuple[str, ...],
        certificate_error: str,
    ) -> Connection:
        """Create the Connection; the crate calls this at its first request."""
        listener = self._listeners[index]
        return Connection(
            listener.name or listener.url,
            peer,
            listener.limits,
            is_tls=is_tls,
            protocol=protocol,
            server_name=server_name,
            certificates=certificates,
            verified_by=verified_by,
            certificate_error=go_error_text(certificate_error),
        )

    # Inbound: called by the loop while there is something to poll.

    def _run_batch(self) -> None:
        crate, sink, loop = self._crate, self._sink, self._loop
        if crate is None or sink is None or loop is None:
            return
        crate.disarm()
        self._is_flush_due = True  # at the end of this method
        try:
            self._poll(crate, sink)
        except ComponentError as error:
            loop.remove_reader(crate.descriptor())
            self._crate = None
            sink.on_failure(error)
            return
        finally:
            self._is_flush_due = False
            crate.flush()
            if self._crate is not None and (self._deferred is not None or not crate.arm()):
                loop.call_soon(self._run_batch)

    def _poll(self, crate: HttpServer, sink: Sink) -> None:
        if self._deferred is not None:
            requests, progress = self._deferred
            self._deferred = None
        else:
            try:
                requests, pieces, ended, disconnected, writable, notices = crate.poll()
            except RuntimeError as error:
                raise ComponentError(f"the native transport failed: {error}") from error
            progress = pieces, ended, disconnected, writable
            for notice in notices:
                sink.on_notice(notice)
        if len(requests) > _SLICE:
            self._deferred = requests[_SLICE:], progress
            sink.on_requests(requests[:_SLICE])
            return
        if requests:
            sink.on_requests(requests)
        sink.on_progress(*progress)
        if self._stopped is not None and crate.is_over and not self._stopped.done():
            self._stopped.set_result(None)

    # Outbound: gathered in the crate, flushed once per iteration.

    @override
    def respond(
        self, call: int, status: int, headers: Headers, body: bytes | None, *rest: bytes
    ) -> None:
        if self._crate is not None:
            self._crate.respond(call, status, headers, body, *rest)
            if not self._is_flush_due:
                self._flush_soon()

    @override
    def write(self, call: int, data: bytes) -> int | None:
        if self._crate is None:
            return None
        if not self._is_flush_due:
            self._flush_soon()
        return self._crate.write(call, data)

    @override
    def write_all(self, calls: list[int], data: bytes, unsent_bytes_max: int) -> list[int]:
        if self._crate is None:
            return []
        if not self._is_flush_due:
            self._flush_soon()
        return self._crate.write_all(calls, data, unsent_bytes_max)

    @override
    def end(self, call: int, *, is_whole: bool) -> None:
        if self._crate is not None:
            self._crate.end(call, is_whole)
            if not self._is_flush_due:
                self._flush_soon()

    @override
    def take(self, call: int, size: int) -> None:
        if self._crate is not None:
            self._crate.take(call, size)
            if not self._is_flush_due:
                self._flush_soon()

    @override
    def notify_writable(self, call: int, unsent_bytes_max: int) -> bool:
        return self._crate is None or self._crate.notify_writable(call, unsent_bytes_max)

    @override
    def unsent(self, calls: list[int]) -> list[int]:
        return [0] * len(calls) if self._crate is None else self._crate.unsent(calls)

    @override
    def cut(self, call: int) -> None:
        if self._crate is not None:
            self._crate.cut(call)
            if not self._is_flush_due:
                self._flush_soon()

    @override
    def stalled(self, limit_s: float) -> list[int]:
        return [] if self._crate is None else self._crate.stalled(limit_s)

    @property
    @override
    def shares_bytes(self) -> bool:
        return True

    def _flush_soon(self) -> None:
        if self._loop is not None:
            self._is_flush_due = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flush_due = False
        if self._crate is not None:
            self._crate.flush()

    # The end.

    @override
    def drain(self) -> None:
        if self._crate is not None:
            self._crate.flush()
            self._crate.drain()

    @property
    @override
    def is_drained(self) -> bool:
        return self._crate is None or self._crate.is_drained

    @override
    async def stop(self, grace_s: float) -> None:
        if self._crate is None or self._loop is None:
            return
        self._stopped = self._loop.create_future()
        self._crate.flush()
        self._crate.stop(grace_s)
        self._run_batch()  # it may have stopped already
        async with asyncio.timeout(grace_s + _STOP_SLACK_S):
            await self._stopped
        self._loop.remove_reader(self._crate.descriptor())
        self._crate = None


def _address(
    listener: Listener, settings: list[ServerTls]
) -> tuple[str, int | None, bool, int | None, dict[str, int | float]]:
    """Return a listener in the crate's form; its TLS settings are added to settings, once."""
    address = addresses.parse(listener.url, with_tls=listener.tls is not None)
    index: int | None = None
    if address.secure and listener.tls is not None:
        if listener.tls not in settings:
            settings.append(listener.tls)
        index = settings.index(listener.tls)
    limits = dataclasses.asdict(listener.limits)
    if isinstance(address, addresses.UnixAddress):
        addresses.remove_stale(address.path)
        return address.path, None, not address.secure, index, limits
    return address.host, address.port, not address.secure, index, limits


def _tls(tls: ServerTls) -> dict[str, object]:
    """Return the TLS settings under the crate's names."""
    return {
        "pair": _pair(tls.pair),
        "others": [_pair(each) for each in tls.others],
        "client_auth": int(tls.client_auth),
        "authorities": [(name, _source(pem)) for name, pem in tls.authorities.items()],
        "http2": tls.http2,
        "min_version": tls.min_version,
        "max_version": tls.max_version,
        "cipher_suites": list(tls.cipher_suites),
    }


def _pair(pair: KeyPair) -> tuple[tuple[bool, bytes], tuple[bool, bytes], list[str]]:
    return _source(pair.cert), _source(pair.key), list(pair.names)


def _source(pem: Pem) -> tuple[bool, bytes]:
    return (True, pem.encode()) if isinstance(pem, str) else (False, pem)


def _bind_error(listener: Listener, error: OSError) -> ConfigError:
    number, text = error.errno or 0, str(error.strerror)
    if number and listener.url.startswith("unix"):
        text = addresses.unix_error(listener.url.partition("://")[2])
    elif number:
        text = os.strerror(number)
    return ConfigError(f"cannot listen on {listener.url}: {text}")
