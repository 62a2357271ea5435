"""The portable transport: grpcio's asyncio server in a thread of its own.

    GrpcTransport(addresses, served, options) ──► poll / flush / wake / stop (transport.base)

It serves gRPC over HTTP/2 on TCP and unix sockets, in plaintext or with TLS. Calls gather in a
mailbox while the driver thread is busy with a turn, and an outbox is handed to the loop with one
call, so that a turn costs two thread switches however many calls it carries. The cost of each call
is grpcio's.

The driver sets `inbox.now_ns` and `wall_ms`, because it has the clock. HTTP that is not gRPC,
gzipped answers, plaintext beside TLS on one address and peer traffic are not served here; of TLS
only what `grpcio.tls` supports.
"""

import asyncio
import socket
import threading
from collections import deque
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Final

from kvstack.component.errors import ConfigError
from kvstack.component.net import addresses
from kvstack.component.net.addresses import is_secure
from kvstore.batch import Inbox, Metadata, Outbox
from kvstore.config.model import GRPC_OVERHEAD_BYTES
from kvstore.errors import KvstoreError
from kvstore.transport.grpcio import INT32_MAX, grpc
from kvstore.transport.grpcio import tls as grpc_tls
from kvstore.transport.grpcio.calls import (
    METADATA_KEYS,
    BidiStream,
    Call,
    CallDetails,
    CallTable,
    RefusedCall,
    ServerStream,
    UnaryCall,
)
from kvstore.transport.mailbox import Mailbox, MailboxLimits
from kvstore.transport.tls import TlsOptions
from kvstore.wire.rpc import METHODS, Kind

METADATA_BYTES_MAX: Final = 1 << 20  # of one call; tokens may be long
PENDING_CALLS_MAX: Final = 65_536  # opened and not yet handled; grpcio's default is 1,000
_NOTICES_MAX: Final = 64
_OVERSIZE_SLACK_BYTES: Final = 16 << 20  # above it grpcio refuses a message itself, with its text
_START_TIMEOUT_S: Final = 30.0
_STOP_SLACK_S: Final = 5.0
# How long a stopping server still refuses calls. When grpcio stops it cancels calls that have just
# arrived; clients take CANCELLED for their own cancellation and do not try another server.
_REFUSE_S: Final = 0.1


@dataclass(frozen=True, slots=True)
class GrpcOptions:
    """Limits and keep-alive of the client port; the defaults are etcd's."""

    request_bytes_max: int = 1_572_864 + GRPC_OVERHEAD_BYTES  # one received message
    stream_backlog_bytes_max: int = 64 << 20  # unsent on one stream; above, the stream is ended
    concurrent_streams_max: int = 2**32 - 1  # per connection
    keepalive_min_s: float = 5.0  # clients may ping this often; 0 = grpc's default
    keepalive_interval_s: float = 7200.0  # after it the server pings an idle client; 0 = never
    keepalive_timeout_s: float = 20.0
    mailbox: MailboxLimits = field(default_factory=MailboxLimits)
    reuse_port: bool = False  # another process may listen on the same TCP addresses
    tls: TlsOptions | None = None  # None: https:// and unixs:// are refused

    def channel_arguments(self) -> list[tuple[str, int]]:
        """Return the options in grpcio's names and units."""
        receive_max = min(self.request_bytes_max + _OVERSIZE_SLACK_BYTES, INT32_MAX)
        arguments = [
            ("grpc.so_reuseport", int(self.reuse_port)),  # off: a second server must fail to bind
            ("grpc.max_receive_message_length", receive_max),
            ("grpc.max_metadata_size", METADATA_BYTES_MAX),
            ("grpc.absolute_max_metadata_size", METADATA_BYTES_MAX),
            ("grpc.max_send_message_length", -1),
            ("grpc.keepalive_permit_without_calls", 1),
            # Above these, grpcio cancels new calls at random, whichever client they are from.
            ("grpc.server.max_pending_requests", PENDING_CALLS_MAX),
            ("grpc.server.max_pending_requests_hard_limit", 2 * PENDING_CALLS_MAX),
        ]
        if self.concurrent_streams_max <= INT32_MAX:  # above: no limit
            arguments.append(("grpc.max_concurrent_streams", self.concurrent_streams_max))
        if self.keepalive_min_s > 0:
            minimum_ms = min(int(self.keepalive_min_s * 1000), INT32_MAX)
            arguments.append(("grpc.http2.min_ping_interval_without_data_ms", minimum_ms))
        if self.keepalive_interval_s > 0 and self.keepalive_timeout_s > 0:
            interval_ms = min(int(self.keepalive_interval_s * 1000), INT32_MAX)
            timeout_ms = min(int(self.keepalive_timeout_s * 1000), INT32_MAX)
            arguments.append(("grpc.keepalive_time_ms", interval_ms))
            arguments.append(("grpc.keepalive_timeout_ms", timeout_ms))
        return arguments


class Router:
    """Finds the handler of a path; grpcio's generic handler."""

    def __init__(self, served: Collection[int], table: CallTable) -> None:
        self._table = table
        self._kinds = {
            METHODS[method_id].path: (method_id, METHODS[method_id].kind) for method_id in served
        }
        self._services = {METHODS[method_id].service for method_id in served}

    def service(self, details: CallDetails) -> Call:
        """Return a fresh handler for one call."""
        found = self._kinds.get(details.method)
        if found is None:
            return RefusedCall(self._unknown(details.method))
        method_id, kind = found
        metadata: Metadata | None = None
        for key, value in details.invocation_metadata:
            if key in METADATA_KEYS and isinstance(value, str):
                metadata = {**(metadata or {}), key: value}
        if kind == Kind.UNARY:
            return UnaryCall(self._table, method_id, metadata)
        if kind == Kind.SERVER_STREAM:
            return ServerStream(self._table, method_id, metadata)
        return BidiStream(self._table, method_id, metadata)

    def _unknown(self, path: str) -> str:
        service, slash, method = path.removeprefix("/").rpartition("/")
        if not slash:
            return f'malformed method name: "{path}"'
        if service in self._services:
            return f"unknown method {method} for service {service}"
        return f"unknown service {service}"


class GrpcTransport:
    """A Transport over grpcio; see `kvstore.transport.base`.

    poll, wake and stop belong to the driver thread (wake to any); flush may be called by any one
    thread at a time.
    """

    def __init__(
        self,
        urls: Sequence[str],
        served: Collection[int],
        options: GrpcOptions | None = None,
        on_notice: Callable[[str], None] | None = None,
    ) -> None:
        """Bind every url (http://host:port, unix://path) and serve; ConfigError names a bad one.

        on_notice gets a line for the log, from poll, when TLS files cannot be used.
        """
        _refuse_mixed_addresses(urls)
        self._options = options or GrpcOptions()
        self._on_notice = on_notice
        self._notices: deque[str] = deque(maxlen=_NOTICES_MAX)  # filled by grpcio's threads
        self._credentials: grpc.ServerCredentials | None = None
        if self._options.tls is not None:
            self._credentials = grpc_tls.credentials(self._options.tls, self._notices.append)
        self._loop = asyncio.new_event_loop()
        self._mailbox = Mailbox(self._options.mailbox, self._resume)
        self._calls = CallTable(
            self._loop,
            self._mailbox,
            self._options.request_bytes_max,
            self._options.stream_backlog_bytes_max,
        )
        self._calls.has_client_certificates = bool(
            self._options.tls and self._options.tls.trusted_ca_file
        )
        self._stopping = asyncio.Event()
        self._grace_s = 0.0
        self._failure: BaseException | None = None
        started: Future[list[str]] = Future()
        self._thread = threading.Thread(
            target=self._run, args=(list(urls), served, started), name="grpc", daemon=True
        )
        self._thread.start()
        try:
            self.bound_urls: Final = started.result(_START_TIMEOUT_S)
        except BaseException:
            self._thread.join(_STOP_SLACK_S)
            raise

    def poll(self, timeout_s: float) -> Inbox:
        """Wait up to timeout_s for arrivals and return them; KvstoreError if the server ended."""
        if self._failure is not None:
            raise KvstoreError(f"the gRPC server failed: {self._failure!r}")
        inbox = self._mailbox.take(timeout_s)
        while self._notices:
            notice = self._notices.popleft()
            if self._on_notice is not None:
                self._on_notice(notice)
        inbox.backlog = self._calls.backlog()
        return inbox

    def flush(self, outbox: Outbox) -> None:
        """Pass replies, deliveries and ends to the loop thread."""
        if outbox.replies or outbox.deliveries or outbox.ends:
            self._calls.account(outbox)
            self._loop.call_soon_threadsafe(self._calls.dispatch, outbox)

    def wake(self) -> None:
        """Make a waiting poll return."""
        self._mailbox.wake()

    def peer_of(self, call_id: int) -> str | None:
        """Return the client's address of a call; None when it is no longer known."""
        return self._calls.peer_of(call_id)

    def drain(self) -> None:
        """Refuse new calls; those in flight are still answered.

        Clients get no GOAWAY before stop(), because grpcio would cancel calls that arrive at that
        moment.
        """
        self._loop.call_soon_threadsafe(self._calls.refuse_new)

    @property
    def is_drained(self) -> bool:
        """Whether, since drain(), every call is answered."""
        return self._calls.is_drained

    def stop(self, grace_s: float) -> None:
        """Refuse new calls, end open ones after what was flushed, close within grace_s."""
        if not self._thread.is_alive():
            return
        self._loop.call_soon_threadsafe(self._begin_stop, grace_s)
        self._thread.join(grace_s + _STOP_SLACK_S)
        if self._thread.is_alive():
            raise KvstoreError(
                f"the gRPC server did not stop {_STOP_SLACK_S} s after its grace period"
            )

    def _resume(self) -> None:
        self._loop.call_soon_threadsafe(self._calls.resume)

    def _begin_stop(self, grace_s: float) -> None:
        self._grace_s = grace_s
        self._stopping.set()

    def _run(self, urls: list[str], served: Collection[int], started: "Future[list[str]]") -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve(urls, served, started))
        except BaseException as failure:  # noqa: BLE001 - raised by start() or the driver
            self._failure = failure
            if not started.done():
                started.set_exception(failure)
            self._mailbox.wake()
        finally:
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()

    async def _serve(
        self, urls: list[str], served: Collection[int], started: "Future[list[str]]"
    ) -> None:
        server = grpc.aio.server(
            handlers=[Router(served, self._calls)],  # type: ignore[list-item]
            options=self._options.channel_arguments(),
        )
        try:
            bound = [bind(server, url, self._credentials) for url in urls]
            await server.start()
        except BaseException:
            await server.stop(None)
            raise
        started.set_result(bound)
        terminated = self._loop.create_task(server.wait_for_termination())
        stopping = self._loop.create_task(self._stopping.wait())
        await asyncio.wait([terminated, stopping], return_when=asyncio.FIRST_COMPLETED)
        if terminated.done():
            stopping.cancel()
            await terminated
            raise KvstoreError("it ended without an error")
        self._calls.refuse_all()
        await asyncio.sleep(_REFUSE_S)
        await server.stop(self._grace_s)
        await terminated


def check(urls: Sequence[str], tls: TlsOptions | None) -> None:
    """Refuse settings that grpcio does not support; ConfigError names the flag or the address."""
    _refuse_mixed_addresses(urls)
    if tls is not None:
        grpc_tls.check(tls)


def _refuse_mixed_addresses(urls: Sequence[str]) -> None:
    """Refuse addresses that are to serve both plaintext and TLS."""
    secure = {url.partition("://")[2] for url in urls if is_secure(url)}
    for url in urls:
        if not is_secure(url) and url.partition("://")[2] in secure and not url.endswith(":0"):
            raise ConfigError(
                f"cannot listen on {url}: plaintext beside TLS on one address needs the native "
                "transport"
            )


def bind(
    server: grpc.aio.Server, url: str, credentials: grpc.ServerCredentials | None = None
) -> str:
    """Listen on url and return it with the port that was bound; ConfigError if it cannot."""
    address = addresses.parse(url, with_tls=credentials is not None)
    is_unix = isinstance(address, addresses.UnixAddress)
    target = f"unix:{address.path}" if isinstance(address, addresses.UnixAddress) else address.text
    try:
        if address.secure and credentials is not None:
            port = server.add_secure_port(target, credentials)
        else:
            port = server.add_insecure_port(target)
    except RuntimeError as error:
        raise ConfigError(f"cannot listen on {url}: {_reason(address)}") from error
    return url if is_unix else addresses.bound_url(url, port)


def _reason(address: addresses.TcpAddress | addresses.UnixAddress) -> str:
    """Get the reason why an address cannot be bound from the system, because grpcio gives none."""
    if isinstance(address, addresses.UnixAddress):
        return addresses.unix_error(address.path)
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address.host, address.port))
            probe.listen(1)
        except OSError as error:
            return error.strerror or str(error)
    return "the address could not be bound"
