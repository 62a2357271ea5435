"""The peer port: sockets, TLS and HTTP/1.1 requests, which Handlers answers.

    accept ──► a thread per connection ──► [TLS] ──► request, answer, request, answer, …
                                                     or: the socket becomes a stream

There are at most CONNECTIONS_MAX connections; members need a few each. A connection is closed if it
sends nothing for read_timeout_s, takes longer than HEAD_S for the head of a request, or sends bytes
that are not HTTP.
"""

import contextlib
import os
import socket
import stat
import threading
import time
from collections.abc import Iterator, Sequence
from email.utils import formatdate
from http import HTTPStatus
from typing import Final, NamedTuple, Protocol
from urllib.parse import urlsplit

import h11

from kvstack.component.errors import ConfigError
from kvstack.component.logger import Logger
from kvstack.component.net.addresses import is_answered, unix_error
from kvstack.component.net.descriptors import RESERVE, Descriptors
from kvstack.component.net.listening import listen_tcp, peer_text
from kvstack.component.net.tls_errors import go_error_text
from kvstore.peers import tls as peer_tls
from kvstore.peers.http_client import close_socket, tune
from kvstore.peers.tls import PeerTls, PeerTlsError

CONNECTIONS_MAX: Final = 512
HEAD_S: Final = 10.0
_BACKLOG: Final = 128
_HEAD_BYTES_MAX: Final = 64 << 10
_RECEIVE_BYTES: Final = 256 << 10
_ACCEPT_POLL_S: Final = 0.5
_STOP_S: Final = 2.0


class BodyTooLongError(Exception):
    """The body of a request is longer than its limit."""


class PeerRequest(NamedTuple):
    """The head of a request."""

    method: str
    path: str  # without the query
    query: str
    headers: dict[str, str]  # names in lower case
    remote: str  # address of the client


class Reply(NamedTuple):
    """A complete response."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes
    is_last: bool = False  # close the connection after it


class Upgrade(NamedTuple):
    """The connection becomes a stream: the head is sent, then stream.attach() gets the socket."""

    headers: list[tuple[str, str]]
    stream: "StreamOwner"


class StreamOwner(Protocol):
    """Uses the socket of a stream."""

    def attach(self, connection: socket.socket) -> None:
        """Take over the socket."""
        ...


class Body(Protocol):
    """The body of a request, as it is received."""

    def read(self, bytes_max: int) -> bytes:
        """Return all of it; BodyTooLongError above bytes_max, OSError if it is truncated."""
        ...

    def pieces(self) -> Iterator[bytes]:
        """Yield it piece by piece; OSError if it is truncated."""
        ...


class PeerHandler(Protocol):
    """Answers requests; called in the connection's thread."""

    def handle(self, request: PeerRequest, body: Body) -> Reply | Upgrade:
        """Return the answer. An OSError of the body may pass through: it ends the connection."""
        ...


def plain(status: int, text: str, headers: Sequence[tuple[str, str]] = ()) -> Reply:
    """Return a response of one line of text, as Go's server writes errors."""
    return Reply(
        status,
        [
            *headers,
            ("Content-Type", "text/plain; charset=utf-8"),
            ("X-Content-Type-Options", "nosniff"),
        ],
        text.encode() + b"\n",
    )


class Listener:
    """All peer addresses of the member."""

    def __init__(
        self,
        handler: PeerHandler,
        tls: PeerTls,
        logger: Logger,
        *,
        read_timeout_s: float,
        reuse_port: bool = False,
    ) -> None:
        self._handler = handler
        self._tls = tls
        self._logger = logger
        self._read_timeout_s = read_timeout_s
        self._reuse_port = reuse_port
        self._sockets: list[tuple[socket.socket, bool]] = []  # and whether it is TLS
        self._unix_paths: list[str] = []
        self._lock = threading.Lock()
        self._connections: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._stopping = threading.Event()
        self.bound_urls: list[str] = []

    def bind(self, urls: Sequence[str]) -> None:
        """Bind the addresses; ConfigError if one cannot be bound."""
        for url in urls:
            secure = url.startswith(("https://", "unixs://"))
            if secure:
                try:
                    peer_tls.server_context(self._tls)
                except PeerTlsError as error:
                    self.stop()
                    raise ConfigError(f"cannot listen on TLS for {url}: {error}") from None
            try:
                self._sockets.append((self._bind(url), secure))
            except (OSError, ValueError) as error:
                self.stop()
                raise ConfigError(f"cannot listen on {url}: {error}") from None

    def start(self) -> None:
        """Accept connections."""
        for each, secure in self._sockets:
            thread = threading.Thread(
                target=self._accept, args=(each, secure), name="peer-accept", daemon=True
            )
            self._threads.append(thread)
            thread.start()

    def stop(self) -> None:
        """Close the addresses and every connection that is not a stream."""
        self._stopping.set()
        for each, _ in self._sockets:
            close_socket(each)
        for path in self._unix_paths:
            with contextlib.suppress(OSError):
                os.unlink(path)
        with self._lock:
            connections = list(self._connections)
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(_STOP_S)

    def _bind(self, url: str) -> socket.socket:
        parts = urlsplit(url)
        if parts.scheme in {"unix", "unixs"}:
            return self._bind_unix(url, parts.netloc + parts.path)
        if parts.scheme not in {"http", "https"}:
            raise ValueError("only http, https, unix and unixs addresses are served")
        host = "127.0.0.1" if parts.hostname == "localhost" else parts.hostname or "0.0.0.0"
        each = listen_tcp(host, parts.port or 0, _BACKLOG, reuse_port=self._reuse_port)
        each.settimeout(_ACCEPT_POLL_S)
        text = f"[{host}]" if ":" in host else host
        self.bound_urls.append(f"{parts.scheme}://{text}:{each.getsockname()[1]}")
        return each

    def _bind_unix(self, url: str, path: str) -> socket.socket:
        if is_answered(path):
            raise ValueError("the socket is in use by another process")
        with contextlib.suppress(FileNotFoundError):
            if stat.S_ISSOCK(os.stat(path).st_mode):
                os.unlink(path)  # of a process that has ended
        bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            bound.bind(path)
            bound.listen(_BACKLOG)
        except OSError as error:
            bound.close()
            raise ValueError(f"{error.strerror}: {unix_error(path)}") from None
        bound.settimeout(_ACCEPT_POLL_S)
        self._unix_paths.append(path)
        self.bound_urls.append(url)
        return bound

    def _accept(self, listening: socket.socket, secure: bool) -> None:  # noqa: FBT001
        descriptors = Descriptors()
        while not self._stopping.is_set():
            try:
                raw, _ = listening.accept()
            except TimeoutError:
                continue
            except OSError as error:
                if self._stopping.is_set():
                    return
                self._logger.warning("cannot accept a peer connection", error=str(error))
                self._stopping.wait(_ACCEPT_POLL_S)
                self._wait_for_descriptors(descriptors)
                continue
            is_short = descriptors.are_short_with(raw.fileno())
            with self._lock:
                is_full = len(self._connections) >= CONNECTIONS_MAX
                if not is_full:
                    self._connections.add(raw)
            if is_full:
                raw.close()
                self._logger.warning("refused a peer connection", limit=CONNECTIONS_MAX)
                continue
            threading.Thread(
                target=self._serve, args=(raw, secure), name="peer-connection", daemon=True
            ).start()
            if is_short:
                self._wait_for_descriptors(descriptors)

    def _wait_for_descriptors(self, descriptors: Descriptors) -> None:
        """Return when at least RESERVE descriptors are left, or at the end."""
        is_logged = False
        while not self._stopping.is_set() and descriptors.are_short():
            if not is_logged:
                is_logged = True
                self._logger.warning(
                    "accepting no peer connections: too few file descriptors are left",
                    reserve=RESERVE,
                )
            self._stopping.wait(_ACCEPT_POLL_S)

    def _serve(self, raw: socket.socket, secure: bool) -> None:  # noqa: FBT001
        """Serve one connection to its end."""
        connection = raw
        is_ours = True
        remote = _remote_of(raw)
        try:
            raw.settimeout(self._read_timeout_s)
            if raw.family != socket.AF_UNIX:
                tune(raw)
            if secure:
                connection = peer_tls.accept(raw, self._tls)
                with self._lock:
                    self._connections.discard(raw)
                    self._connections.add(connection)
                connection.settimeout(self._read_timeout_s)
            owner = _Exchange(connection, self._handler, self._read_timeout_s).run()
            if owner is not None:
                is_ours = False
                with self._lock:
                    self._connections.discard(connection)
                owner.attach(connection)
        except PeerTlsError as error:
            self._logger.warning(
                "rejected connection on peer endpoint",
                remote_addr=remote,
                error=go_error_text(str(error)),
            )
        except OSError as error:
            self._logger.debug("peer connection ended", error=str(error))
        except h11.ProtocolError as error:
            self._logger.debug("peer connection did not send HTTP", error=str(error))
        finally:
            with self._lock:
                self._connections.discard(raw)
                self._connections.discard(connection)
            if is_ours:
                close_socket(connection)


class _Exchange:
    """Requests and responses on one connection; also the Body of the current request."""

    def __init__(
        self, connection: socket.socket, handler: PeerHandler, read_timeout_s: float
    ) -> None:
        self._socket = connection
        self._head_s_max = read_timeout_s + HEAD_S
        self._handler = handler
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=_HEAD_BYTES_MAX)
        self._remote = _remote_of(connection)
        self._head_deadline_s = 0.0

    def run(self) -> StreamOwner | None:
        """Serve until the end; return the owner of the socket if it became a stream."""
        while True:
            self._head_deadline_s = time.monotonic() + self._head_s_max
            head = self._next_event()
            self._head_deadline_s = 0.0
            if not isinstance(head, h11.Request):
                return None
            answer = self._handler.handle(self._request(head), self)
            if isinstance(answer, Upgrade):
                self._send_head(200, [*answer.headers, ("Transfer-Encoding", "chunked")])
                return answer.stream
            self._answer(answer, has_body=head.method != b"HEAD")
            if answer.is_last or not self._start_next():
                return None

    # The body.

    def read(self, bytes_max: int) -> bytes:
        """Return the whole body."""
        pieces: list[bytes] = []
        size = 0
        for piece in self.pieces():
            pieces.append(piece)
            size += len(piece)
            if size > bytes_max:
                raise BodyTooLongError(f"body longer than {bytes_max} bytes")
        return b"".join(pieces)

    def pieces(self) -> Iterator[bytes]:
        """Yield the body."""
        if self._http.they_are_waiting_for_100_continue:
            self._send(self._http.send(h11.InformationalResponse(status_code=100, headers=[])))
        while True:
            event = self._next_event()
            if isinstance(event, h11.Data):
                yield bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                return
            else:
                raise ConnectionResetError("the body of a request was truncated")

    def _start_next(self) -> bool:
        """Prepare for another request, if the last one was read completely."""
        http = self._http
        if http.their_state is h11.SEND_BODY and not http.they_are_waiting_for_100_continue:
            event = self._next_event()  # the end of an unread body, if it has arrived
            if not isinstance(event, h11.EndOfMessage):
                return False
        if http.our_state is not h11.DONE or http.their_state is not h11.DONE:
            return False
        http.start_next_cycle()
        return True

    def _request(self, head: h11.Request) -> PeerRequest:
        target = head.target.decode("latin-1")
        if target.startswith(("http://", "https://")):
            parts = urlsplit(target)
            path, query = parts.path or "/", parts.query
        else:
            path, _, query = target.partition("?")
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers}
        return PeerRequest(head.method.decode("latin-1"), path, query, headers, self._remote)

    def _answer(self, answer: Reply, *, has_body: bool) -> None:
        headers = list(answer.headers)
        if answer.status != HTTPStatus.NO_CONTENT:
            headers.append(("Content-Length", str(len(answer.body))))
        if answer.is_last:
            headers.append(("Connection", "close"))
        data = self._http.send(self._head(answer.status, headers)) or b""
        if answer.body and has_body:
            data += self._http.send(h11.Data(data=answer.body)) or b""
        self._send(data + (self._http.send(h11.EndOfMessage()) or b""))

    def _send_head(self, status: int, headers: list[tuple[str, str]]) -> None:
        self._send(self._http.send(self._head(status, headers)))

    def _head(self, status: int, headers: list[tuple[str, str]]) -> h11.Response:
        reason = HTTPStatus(status).phrase
        dated = [*headers, ("Date", formatdate(usegmt=True))]
        return h11.Response(status_code=status, headers=dated, reason=reason)

    def _send(self, data: bytes | None) -> None:
        if data:
            self._socket.sendall(data)

    def _next_event(self) -> object:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            if self._head_deadline_s and time.monotonic() > self._head_deadline_s:
                raise TimeoutError("the head of a request took too long")
            self._http.receive_data(self._socket.recv(_RECEIVE_BYTES))
        return event


def _remote_of(connection: socket.socket) -> str:
    """Return the address of the other end; empty if it has closed."""
    try:
        name = connection.getpeername()
    except OSError:
        return ""
    return peer_text(name) or "unix"
