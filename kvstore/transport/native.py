"""The fast transport: a native crate that owns sockets, HTTP/2 and gRPC framing.

    NativeTransport(urls, served, options) ──► poll / flush / wake / stop (transport.base)

The crate (kvstore/native) runs in its own thread, which never takes Python's lock; a batch
is passed in one call each way. It is optional: where it was not built, `is_available()` is false
and the grpcio transport serves the same API.

The driver, which has the clock, sets `inbox.now_ns` and `wall_ms`. HTTP requests are not
interpreted here, and peer traffic is elsewhere.

An address that is listed with http:// and with https:// (or unix:// and unixs://) serves both,
distinguished by the first byte. The common name of a client's certificate is in the call's metadata
under `tls-common-name`.
"""

import os
import signal
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from kvstack.component import crate
from kvstack.component.crate import MISSING as MISSING
from kvstack.component.crate import is_available as is_available
from kvstack.component.errors import ConfigError
from kvstack.component.net import addresses
from kvstore.batch import Inbox, Outbox
from kvstore.errors import KvstoreError
from kvstore.transport.mailbox import MailboxLimits
from kvstore.transport.tls import TlsOptions
from kvstore.wire.rpc import ENDLESS, METHODS

REQUEST_OVERHEAD_BYTES: Final = 512 << 10  # what gRPC may add to the largest request
_DEFAULT_PING_MIN_S: Final = 300.0  # grpc's default


@dataclass(frozen=True, slots=True)
class NativeOptions:
    """Limits and keep-alive of the client port; the defaults are etcd's where it has any."""

    request_bytes_max: int = 1_572_864 + REQUEST_OVERHEAD_BYTES  # one received message
    http_body_bytes_max: int = 0  # one HTTP body that is read ahead; 0: as above
    stream_backlog_bytes_max: int = 64 << 20  # unsent on one stream; more ends it
    concurrent_streams_max: int = 2**32 - 1  # per connection
    keepalive_min_s: float = 5.0  # clients may ping this often; 0 = grpc's default
    keepalive_interval_s: float = 7200.0  # the server pings an idle client; 0 = never
    keepalive_timeout_s: float = 20.0
    mailbox: MailboxLimits = field(default_factory=MailboxLimits)
    metadata_bytes_max: int = 1 << 20  # of one call; tokens may be long
    connection_backlog_bytes_max: int = 256 << 20  # answers unread on one connection; more ends it
    assembling_bytes_max: int = 256 << 20  # of incomplete requests, over all connections
    connections_max: int = 65_536
    handshake_timeout_s: float = 20.0
    header_timeout_s: float = 300.0  # HTTP/1.1: from one request to the headers of the next
    write_stall_timeout_s: float = 30.0  # the socket takes no byte although some wait; 0: no limit
    send_bytes_max: int = 2**31 - 1  # one sent message
    tls: TlsOptions | None = None  # without it https:// and unixs:// are refused
    reuse_port: bool = False  # another process may listen on the same TCP addresses
    serves_http: bool = False  # HTTP requests go to inbox.requests; else they are refused

    def columns(self) -> dict[str, int | float]:
        """Return the options under the crate's names."""
        mailbox = self.mailbox
        return {
            "request_bytes_max": self.request_bytes_max,
            "http_body_bytes_max": self.http_body_bytes_max or self.request_bytes_max,
            "stream_backlog_bytes_max": self.stream_backlog_bytes_max,
            "connection_backlog_bytes_max": self.connection_backlog_bytes_max,
            "assembling_bytes_max": self.assembling_bytes_max,
            "metadata_bytes_max": self.metadata_bytes_max,
            "concurrent_streams_max": min(self.concurrent_streams_max, 2**32 - 1),
            "connections_max": self.connections_max,
            "handshake_timeout_s": self.handshake_timeout_s,
            "header_timeout_s": self.header_timeout_s,
            "write_stall_timeout_s": self.write_stall_timeout_s,
            "reuse_port": self.reuse_port,
            "send_bytes_max": min(self.send_bytes_max, 2**31 - 1),
            "keepalive_min_s": self.keepalive_min_s or _DEFAULT_PING_MIN_S,
            "keepalive_interval_s": self.keepalive_interval_s,
            "keepalive_timeout_s": self.keepalive_timeout_s,
            "calls_max": mailbox.calls_max,
            "bytes_max": mailbox.bytes_max,
            "waiting_calls_max": mailbox.waiting_calls_max,
            "waiting_bytes_max": mailbox.waiting_bytes_max,
            "stream_frames_max": mailbox.stream_frames_max,
            "stream_bytes_max": mailbox.stream_bytes_max,
        }


class SharedSleep(Protocol):
    """Another event source of the driver's thread, which can wait for a descriptor as well."""

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to wait for; wake() is called when that changes."""
        ...

    def share(self, descriptor: int) -> None:
        """Make wait() also return when descriptor is readable."""
        ...

    def wait(self, timeout_s: float) -> None:
        """Sleep until an event, or for timeout_s; signals are handled meanwhile."""
        ...


class NativeTransport:
    """A Transport over the crate; see `kvstore.transport.base`.

    poll, wake and stop belong to the driver thread (wake to any); flush may be called by any one
    thread at a time.
    """

    def __init__(
        self,
        urls: Sequence[str],
        served: Collection[int],
        options: NativeOptions | None = None,
        on_notice: Callable[[str], None] | None = None,
        http_urls: Sequence[str] = (),
    ) -> None:
        """Bind every url (http://host:port, unix://path) and serve; ConfigError names a bad one.

        At http_urls HTTP is served and no gRPC, whatever the options are. on_notice gets a line for
        the log, from poll, for each connection that was closed because of an error.
        """
        if crate.Server is None:
            raise ConfigError(f"the native transport was not built: {MISSING}")
        options = options or NativeOptions()
        what = _ALL if options.serves_http else _GRPC
        requested = [(url, what) for url in urls] + [(url, _HTTP) for url in http_urls]
        listeners = _listeners(requested, with_tls=options.tls is not None)
        routes = [(METHODS[i].path, i, _kind_of(i)) for i in sorted(served)]
        tls = options.tls.columns() if options.tls else None
        # Signals belong to the driver's thread: the crate's thread starts with all of them blocked.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            self._server = crate.Server(
                [listener.crate_address() for listener in listeners], routes, options.columns(), tls
            )
        except OSError as error:
            number, text, bad = error.errno or 0, str(error.strerror), int(error.filename or 0)
            listener = listeners[bad]
            raise ConfigError(
                f"cannot listen on {requested[listener.indexes[0]][0]}: "
                f"{_reason(listener.address, number, text)}"
            ) from error
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        self._on_notice = on_notice
        self._others: SharedSleep | None = None
        bound = [*urls, *http_urls]
        for listener, port in zip(listeners, self._server.ports, strict=True):
            for index in listener.indexes:
                if port:
                    bound[index] = addresses.bound_url(bound[index], port)
        self.bound_urls: Final = bound[: len(urls)]
        self.bound_http_urls: Final = bound[len(urls) :]

    def poll(self, timeout_s: float) -> Inbox:
        """Wait for arrivals up to timeout_s and take them; KvstoreError if the crate failed."""
        if self._others is not None and timeout_s > 0 and not self._others.is_idle:
            if self._server.arm():
                self._others.wait(timeout_s)
            self._server.disarm()
            timeout_s = 0.0
        try:
            columns = self._server.poll(timeout_s)
        except RuntimeError as error:
            raise KvstoreError(f"the native transport failed: {error}") from error
        calls, opened, frames, half_closed, gone, backlog, metadata, requests, notices = columns
        if notices and self._on_notice is not None:
            for notice in notices:
                self._on_notice(notice)
        return Inbox(
            0, 0, calls, opened, frames, half_closed, gone, backlog, metadata, requests=requests
        )

    def flush(self, outbox: Outbox) -> None:
        """Pass replies, deliveries and ends to the crate's thread."""
        if outbox.replies or outbox.deliveries or outbox.ends or outbox.responses:
            self._server.flush(outbox.replies, outbox.deliveries, outbox.ends, outbox.responses)

    def sleep_with(self, others: SharedSleep) -> None:
        """From now on, sleep in poll until something arrives here or in others."""
        others.share(self._server.descriptor())
        self._others = others

    def wake(self) -> None:
        """Make a waiting poll return."""
        self._server.wake()

    def peer_of(self, call_id: int) -> str | None:
        """Return the client's address of a call; None when it is no longer known."""
        return self._server.peer_of(call_id)

    def drain(self) -> None:
        """Close the listeners and send GOAWAY; open calls are still to be answered."""
        self._server.drain()

    @property
    def is_drained(self) -> bool:
        """Whether, after drain(), every call is answered and no new one can arrive."""
        return self._server.is_drained

    def stop(self, grace_s: float) -> None:
        """Refuse new calls, end open ones after what was flushed, close after up to grace_s."""
        if not self._server.stop(grace_s):
            raise KvstoreError("the native transport did not stop within its grace period")


_ALL, _GRPC, _HTTP = 0, 1, 2  # kinds of listeners, in the crate's numbers
_ENDLESS = 3  # a kind of method, beside those of rpc.Kind


def _kind_of(method: int) -> int:
    return _ENDLESS if method in ENDLESS else int(METHODS[method].kind)


@dataclass(slots=True)
class _Listener:
    """One socket to listen on, for one URL or for the two of one address."""

    address: addresses.TcpAddress | addresses.UnixAddress
    indexes: list[int]  # in the list of URLs
    plain: bool
    secure: bool
    what: int

    def crate_address(self) -> tuple[str, int | None, bool, bool, int]:
        """Return the address in the crate's form."""
        address = self.address
        if isinstance(address, addresses.UnixAddress):
            return address.path, None, self.plain, self.secure, self.what
        return address.host, address.port, self.plain, self.secure, self.what


def _listeners(requested: Sequence[tuple[str, int]], *, with_tls: bool) -> list[_Listener]:
    """Return the sockets for (URL, what): plaintext and TLS of one address share one."""
    listeners: dict[object, _Listener] = {}
    for index, (url, kind) in enumerate(requested):
        address = addresses.parse(url, with_tls=with_tls)
        if isinstance(address, addresses.UnixAddress):
            key: object = address.path
        else:
            key = (address.host, address.port) if address.port else index  # any port: its own
        shared = listeners.get(key)
        if shared is not None:
            if shared.what != kind:
                raise ConfigError(
                    "cannot bind both --listen-client-urls and --listen-client-http-urls on the "
                    f"same url {url}"
                )
            shared.indexes.append(index)
            shared.plain |= not address.secure
            shared.secure |= address.secure
            continue
        if isinstance(address, addresses.UnixAddress):
            addresses.remove_stale(address.path)
        listeners[key] = _Listener(address, [index], not address.secure, address.secure, kind)
    return list(listeners.values())


def _reason(address: addresses.TcpAddress | addresses.UnixAddress, number: int, text: str) -> str:
    if isinstance(address, addresses.UnixAddress):
        return addresses.unix_error(address.path) if number else text
    return os.strerror(number) if number else text
