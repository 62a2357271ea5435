"""Blocking HTTP/1.1 requests to other members, each with limits of time and size.

    dial(url) ──► HttpConnection ──► ask(method, target, …) ──► Answer      reuse is possible
                                 ──► open(target, …) ──► status, headers, then raw bytes

For threads that may block. Redirects are not followed. http, https, unix and unixs URLs are
dialled; the path of a URL is ignored, as in etcd.
"""

import contextlib
import selectors
import socket
import ssl
import time
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple
from urllib.parse import SplitResult, urlsplit

import h11

from kvstack.component.net.tls_errors import go_error_text
from kvstore.errors import KvstoreError
from kvstore.peers import tls as peer_tls
from kvstore.peers.tls import PeerTls, PeerTlsError

ANSWER_BYTES_MAX: Final = 8 << 20
_HEAD_BYTES_MAX: Final = 64 << 10
_RECEIVE_BYTES: Final = 64 << 10
_KEEP_ALIVE_S: Final = 30
_BLOCKED: Final = (ssl.SSLWantReadError, ssl.SSLWantWriteError, ssl.SSLEOFError)

HeaderList = Sequence[tuple[str, str]]


class PeerRequestError(KvstoreError):
    """A request failed or got an invalid answer; the text names the address."""


class Answer(NamedTuple):
    """A whole HTTP response."""

    status: int
    headers: dict[str, str]  # names in lower case
    body: bytes

    @property
    def text(self) -> str:
        """The body as an error text, its first 200 characters, without the end of the line."""
        return self.body[:200].decode("utf-8", "replace").rstrip("\n")


def dial(url: str, tls: PeerTls, timeout_s: float) -> "HttpConnection":
    """Connect to the member at url within timeout_s; PeerRequestError if that fails."""
    parts = _split(url)
    try:
        raw = _connect(parts, timeout_s, tls.local_address)
    except (OSError, UnicodeError) as error:
        raise PeerRequestError(f"cannot connect to {url}: {error}") from None
    if parts.scheme in {"https", "unixs"}:
        raw.settimeout(timeout_s)
        try:
            raw = peer_tls.connect(raw, parts.hostname or "localhost", tls)
        except PeerTlsError as error:
            raw.close()
            raise PeerRequestError(f"cannot connect to {url}: {_reason(error)}") from None
    return HttpConnection(raw, parts.netloc or "localhost", url)


def check_url(url: str) -> None:
    """Raise PeerRequestError if url cannot be dialled."""
    _split(url)


class HttpConnection:
    """One connection, for one thread at a time; close() may be called in any."""

    def __init__(self, raw: socket.socket, host: str, url: str) -> None:
        self.socket = raw
        self._host = host
        self._url = url
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=_HEAD_BYTES_MAX)
        self._deadline_s = 0.0

    def ask(
        self,
        method: str,
        target: str,
        headers: HeaderList,
        body: bytes = b"",
        *,
        timeout_s: float,
        bytes_max: int = ANSWER_BYTES_MAX,
    ) -> Answer:
        """Send a request and return the response; PeerRequestError if there is none in time."""
        length = [("Content-Length", str(len(body)))] if body or method == "POST" else []
        self._deadline_s = time.monotonic() + timeout_s
        self._send_head(method, target, [*headers, *length])
        self._send(self._http.send(h11.Data(data=body)) if body else b"")
        self._end_request()
        return self.read_answer(timeout_s=timeout_s, bytes_max=bytes_max)

    def post_pieces(
        self, target: str, headers: HeaderList, pieces: Iterable[bytes], *, stall_s: float
    ) -> None:
        """Send a POST with a chunked body; read_answer() returns the response.

        Each piece must be sent within stall_s. PeerRequestError if the other side ends or stalls.
        """
        self._deadline_s = time.monotonic() + stall_s
        self._send_head("POST", target, [*headers, ("Transfer-Encoding", "chunked")])
        for piece in pieces:
            self._deadline_s = time.monotonic() + stall_s
            self._send(self._http.send(h11.Data(data=piece)))
        self._end_request()

    def open(self, target: str, headers: HeaderList, *, timeout_s: float) -> Answer:
        """Send a GET and return the head of the response, with the bytes received after it.

        For status 200 the raw bytes of the body follow on the socket, framed as the headers say.
        For any other status the body is complete and the connection cannot be reused.
        """
        self._deadline_s = time.monotonic() + timeout_s
        self._send_head("GET", target, headers)
        self._end_request()
        status, found = self._read_head()
        if status == 200:
            return Answer(status, found, self._http.trailing_data[0])
        return Answer(status, found, self._read_body(ANSWER_BYTES_MAX))

    def read_answer(self, *, timeout_s: float, bytes_max: int = ANSWER_BYTES_MAX) -> Answer:
        """Return the response to the last request; PeerRequestError if there is none in time."""
        self._deadline_s = time.monotonic() + timeout_s
        status, found = self._read_head()
        answer = Answer(status, found, self._read_body(bytes_max))
        if self.is_reusable:
            self._http.start_next_cycle()
        return answer

    @property
    def is_reusable(self) -> bool:
        """Whether another request can be sent."""
        return self._http.our_state in {h11.DONE, h11.IDLE} and (
            self._http.their_state in {h11.DONE, h11.IDLE, h11.SEND_RESPONSE}
        )

    @property
    def is_stale(self) -> bool:
        """Whether the other side has closed an idle connection, or sent bytes on it."""
        with selectors.DefaultSelector() as selector:
            selector.register(self.socket, selectors.EVENT_READ)
            return bool(selector.select(0))

    def close(self) -> None:
        """Close; a thread that is blocked on this connection gets an error."""
        close_socket(self.socket)

    def _send_head(self, method: str, target: str, headers: HeaderList) -> None:
        head = [("Host", self._host), *headers]
        self._send(self._http.send(h11.Request(method=method, target=target, headers=head)))

    def _end_request(self) -> None:
        self._send(self._http.send(h11.EndOfMessage()))

    def _send(self, data: bytes | None) -> None:
        if not data:
            return
        try:
            self.socket.settimeout(self._left_s())
            self.socket.sendall(data)
        except OSError as error:
            reason = _reason(self._alert() or error)
            raise PeerRequestError(f"sending to {self._url}: {reason}") from None

    def _alert(self) -> ssl.SSLError | None:
        """Return the alert by which the other side has refused this one, if it has arrived."""
        if type(self.socket) is socket.socket:
            return None
        try:
            self.socket.settimeout(0)
            self.socket.recv(1)
        except _BLOCKED:
            return None
        except ssl.SSLError as error:
            return error
        except OSError:
            return None
        return None

    def _read_head(self) -> tuple[int, dict[str, str]]:
        while True:
            event = self._next_event()
            if isinstance(event, h11.Response):
                return event.status_code, {
                    name.decode("ascii"): value.decode("latin-1") for name, value in event.headers
                }
            if not isinstance(event, h11.InformationalResponse):
                raise PeerRequestError(f"{self._url} closed the connection without an answer")

    def _read_body(self, bytes_max: int) -> bytes:
        pieces: list[bytes] = []
        size = 0
        while True:
            event = self._next_event()
            if not isinstance(event, h11.Data):
                return b"".join(pieces)
            pieces.append(bytes(event.data))
            size += len(event.data)
            if size > bytes_max:
                raise PeerRequestError(f"answer of {self._url} is longer than {bytes_max} bytes")

    def _next_event(self) -> object:
        try:
            while (event := self._http.next_event()) is h11.NEED_DATA:
                self.socket.settimeout(self._left_s())
                self._http.receive_data(self.socket.recv(_RECEIVE_BYTES))
        except (OSError, h11.RemoteProtocolError) as error:
            raise PeerRequestError(f"answer of {self._url}: {_reason(error)}") from None
        return event

    def _left_s(self) -> float:
        left_s = self._deadline_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("timed out")
        return left_s


def close_socket(each: socket.socket) -> None:
    """Close a socket so that a thread blocked on it returns."""
    with contextlib.suppress(OSError):  # it may be closed already
        each.shutdown(socket.SHUT_RDWR)
    each.close()


def _reason(error: Exception) -> str:
    """Return why a request failed; a TLS alert of the other side as Go names it."""
    text = str(error)
    if isinstance(error, ssl.SSLError | PeerTlsError):
        go_text = go_error_text(text)
        return go_text if go_text.startswith("remote error") else text
    return text


def _split(url: str) -> SplitResult:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise PeerRequestError(f'peer URL "{url}": {error}') from None
    if parts.scheme in {"unix", "unixs"} and parts.netloc + parts.path:
        return parts
    if parts.scheme not in {"http", "https"} or not parts.hostname or port is None:
        raise PeerRequestError(f'peer URL "{url}" is not an http, https, unix or unixs address')
    return parts


def _connect(parts: SplitResult, timeout_s: float, local_address: str) -> socket.socket:
    if parts.scheme in {"unix", "unixs"}:
        raw = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        raw.settimeout(timeout_s)
        try:
            raw.connect(parts.netloc + parts.path)
        except BaseException:
            raw.close()
            raise
        return raw
    source = (local_address, 0) if local_address else None
    raw = socket.create_connection((parts.hostname or "", parts.port or 0), timeout_s, source)
    tune(raw)
    return raw


def tune(raw: socket.socket) -> None:
    """Set the options of TCP connections between members: no delay, keep-alive."""
    raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_KEEPIDLE"):
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _KEEP_ALIVE_S)
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _KEEP_ALIVE_S)
