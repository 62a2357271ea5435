"""Answers: status, headers, body.

Every answer has Kubernetes' standard headers and the warnings of the request. Errors are Status
objects in a media type that the client accepts, or else in JSON. Large bodies are compressed for
clients that accept it.
"""

import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from kvstack.apimachinery.objects.status import ApiError
from kvstack.apimachinery.objects.text import json_text
from kvstack.apimachinery.schema.protobuf.codec import encode
from kvstack.apiserver.http.encoding import load_type, write_plain
from kvstack.apiserver.http.negotiation import NotAcceptableError, Offer, negotiate
from kvstack.apiserver.http.pretty import is_pretty
from kvstack.apiserver.verbs.forms.bodies import JSON, PROTOBUF
from kvstack.component.http.serving.answer import PIECE_BYTES, Answer, Upgraded
from kvstack.component.http.serving.request import Request

if TYPE_CHECKING:
    from kvstack.apimachinery.attributes import User
    from kvstack.apiserver.http.limits.unsent import UnsentAnswer
    from kvstack.apiserver.policy.audit.audit_context import AuditContext
    from kvstack.apiserver.policy.flow_control.levels import Ticket

GZIP_BYTES_MIN: Final = 128 << 10
STREAM_BYTES: Final = 3 * PIECE_BYTES
"""Limit of the bytes buffered of an answer that is produced as it is read."""
_WARNINGS_CHARACTERS_MAX: Final = 4096
_WARNING_CUT: Final = 256
_GZIP: Final = 16 + zlib.MAX_WBITS
_ERRORS: Final = Offer(is_routed=False, transforms=False)
PLAIN_TEXT: Final = ("Content-Type", "text/plain; charset=utf-8")
NO_SNIFF: Final = ("X-Content-Type-Options", "nosniff")

Header = tuple[str, str]
Headers = list[Header]


class Tracker(Protocol):
    """Holds what a request takes (seats, counts) until its answer is written."""

    def note_writing(self, reply: "Reply") -> None:
        """Note that a streamed answer begins."""
        ...

    def settled(self, reply: "Reply") -> None:
        """Note that the client of a watch has its initial events."""
        ...


_PACKED: Final[Headers] = [("Content-Encoding", "gzip"), ("Vary", "Accept-Encoding")]


class Reply:
    """The answer to one request, and the headers of all its forms."""

    __slots__ = (
        "_answer",
        "_request",
        "audit",
        "audit_id",
        "cache_control",
        "code",
        "extra",
        "held",
        "on_head",
        "shared",
        "size",
        "ticket",
        "tracker",
        "user",
        "warnings",
    )

    def __init__(self, request: Request, answer: Answer, audit_id: str) -> None:
        self._request = request
        self._answer = answer
        self.audit_id = audit_id
        self.cache_control = "no-cache, private"
        self.warnings: list[str] = []
        self.extra: Headers = []
        """Headers beyond the standard ones."""
        self.code = 0
        """The HTTP status, once it has begun."""
        self.size = 0
        """Bytes of the body so far."""
        self.shared = b""
        """The part of the body that is shared with other answers."""
        self.user: User | None = None
        """The user, once the answer is counted for one."""
        self.held: UnsentAnswer | None = None
        """The bytes that are counted for the user."""
        self.tracker: Tracker | None = None
        """Is notified of progress."""
        self.ticket: Ticket | None = None
        """The ticket of priority and fairness, while it has one."""
        self.audit: AuditContext | None = None
        """The audit context."""
        self.on_head: Callable[[Reply], None] | None = None
        """Called when the head of a long-running answer is sent."""

    @property
    def request(self) -> Request:
        """The request that is answered."""
        return self._request

    @property
    def answer(self) -> Answer:
        """The underlying answer."""
        return self._answer

    @property
    def is_begun(self) -> bool:
        """Whether the head was sent."""
        return self.code != 0

    def headers(self, *own: Header) -> Headers:
        """Return the headers of an answer."""
        cache_control = ("Cache-Control", self.cache_control)
        found = [("Audit-Id", self.audit_id), cache_control, *own, *self.extra]
        if self.warnings:
            found += warning_headers(self.warnings)
        return found

    def send(self, code: int, content_type: str, body: bytes, *own: Header) -> None:
        """Send a complete answer, compressed if that is worthwhile."""
        headers = self.headers(("Content-Type", content_type), *own)
        if len(body) > GZIP_BYTES_MIN and self.takes_gzip:
            body = compressed(body)
            headers += _PACKED
        self.code, self.size = code, len(body)
        self._answer.send(code, headers, body)

    def send_parts(self, code: int, content_type: str, parts: Sequence[bytes]) -> None:
        """Send a complete answer whose parts are shared with others."""
        size = sum(map(len, parts))
        if size > GZIP_BYTES_MIN and self.takes_gzip:
            self.send(code, content_type, b"".join(parts))
            return
        self.code, self.size = code, size
        self.shared = max(parts, key=len)
        self._answer.send(code, self.headers(("Content-Type", content_type)), *parts)

    def send_text(self, code: int, text: str, *own: Header) -> None:
        """Send plain text."""
        self.code, self.size = code, len(text)
        self._answer.send(code, self.headers(PLAIN_TEXT, *own), text.encode())

    def send_bare(self, code: int, text: str) -> None:
        """Send plain text with few headers, for requests that could not be parsed."""
        self.code, self.size = code, len(text)
        self._answer.send(code, [PLAIN_TEXT, NO_SNIFF], text.encode())

    def send_nothing(self, code: int, *own: Header) -> None:
        """Send an answer without a body."""
        self.code = code
        self._answer.send(code, self.headers(*own), b"")

    def send_error(self, error: ApiError, *own: Header) -> None:
        """Send a Status."""
        body, media_type = self._status(error.status)
        self.send(error.code, media_type, body, *retry_after(error), *own)

    async def stream(self, code: int, content_type: str, chunks: Iterable[bytes]) -> None:
        """Send an answer in chunks, as fast as the client reads."""
        content_headers: Headers = [("Content-Type", content_type)]
        packer = None
        if self.takes_gzip:
            packer = zlib.compressobj(1, zlib.DEFLATED, _GZIP)
            content_headers += _PACKED
        self.code = code
        self._answer.start(code, self.headers(*content_headers))
        if self.tracker is not None:
            self.tracker.note_writing(self)
        for chunk in chunks:
            data = chunk if packer is None else packer.compress(chunk)
            self.size += len(data)
            await self._answer.write_piece(data)
        if packer is not None:
            await self._answer.write_piece(packer.flush())
        self._answer.finish()

    def send_as_it_is(self, code: int, headers: Headers, body: bytes) -> None:
        """Send another server's answer unchanged."""
        self.code, self.size = code, len(body)
        self._answer.send(code, [*self.headers(), *headers], body)

    def begin_as_it_is(self, code: int, headers: Headers) -> None:
        """Begin to forward another server's answer, for as long as either side wants."""
        self.code = code
        self._answer.start(code, [*self.headers(), *headers], endless=True)

    def begin_stream(self, content_type: str, *, is_packed: bool = False) -> None:
        """Begin a long-running answer; is_packed: it is compressed."""
        self.code = 200
        headers = self.headers(("Content-Type", content_type))
        if is_packed:
            headers += _PACKED
        self._answer.start(200, headers, endless=True)
        if self.tracker is not None:
            self.tracker.note_writing(self)
        if self.on_head is not None:
            self.on_head(self)

    def send_foreign(self, code: int, headers: Headers, body: bytes) -> None:
        """Send the answer of an aggregated server."""
        self.code, self.size = code, len(body)
        self._answer.send(code, self._foreign(headers), body)

    def begin_foreign(self, code: int, headers: Headers, *, is_endless: bool) -> None:
        """Begin the answer of an aggregated server."""
        self.code = code
        self._answer.start(code, self._foreign(headers), endless=is_endless)

    def _foreign(self, headers: Headers) -> Headers:
        """Return the headers of an aggregated server's answer, with our audit id if it has none."""
        if any(name.lower() == "audit-id" for name, _ in headers):
            return headers
        return [("Audit-Id", self.audit_id), *headers]

    def upgrade(self, protocol: str, headers: Headers) -> Upgraded:
        """Switch the connection to another protocol."""
        self.code = 101
        if self.tracker is not None:
            self.tracker.note_writing(self)
        if self.on_head is not None:
            self.on_head(self)
        return self._answer.upgrade(protocol, headers)

    def refuse_upgrade(self, code: int, *own: Header) -> None:
        """Refuse the protocol switch, without a body."""
        self.code = code
        self._answer.send(code, list(own), b"")

    def may_take_long(self) -> None:
        """Mark the answer as long-running: it holds no seat, and ends when the server stops."""
        self._answer.is_endless = True
        if self.tracker is not None:
            self.tracker.settled(self)

    @property
    def takes_gzip(self) -> bool:
        """Whether the client accepts gzip."""
        return "gzip" in self._request.header("accept-encoding")

    def _status(self, obj: dict[str, Any]) -> tuple[bytes, str]:
        try:
            representation = negotiate(self._request.header("accept"), _ERRORS)
        except NotAcceptableError:
            return json_text.write_indented(obj), JSON
        media_type = representation.media_type
        if media_type == PROTOBUF:
            return encode(obj, load_type("Status")), PROTOBUF
        pretty = is_pretty(self._request, representation)
        return write_plain(obj, media_type, is_pretty=pretty), media_type


def retry_after(error: ApiError) -> list[Header]:
    """Return the Retry-After header, if the error has one."""
    seconds = (error.status.get("details") or {}).get("retryAfterSeconds", 0)
    return [("Retry-After", str(seconds))] if seconds else []


def compressed(body: bytes) -> bytes:
    """Return a body in gzip."""
    packer = zlib.compressobj(1, zlib.DEFLATED, _GZIP)
    return packer.compress(body) + packer.flush()


def compressed_part(events: bytes) -> bytes:
    """Return a part of a stream as a gzip member of its own.

    The data is flushed before the member ends: Go's readers only hand out what was flushed, and
    would otherwise wait for the next member.
    """
    packer = zlib.compressobj(1, zlib.DEFLATED, _GZIP)
    return packer.compress(events) + packer.flush(zlib.Z_SYNC_FLUSH) + packer.flush()


def warning_headers(warnings: Sequence[str]) -> Headers:
    """Return Warning headers without duplicates, truncated where they would be too long."""
    texts: list[str] = []
    size, is_cutting = 0, False
    for each in dict.fromkeys(warnings):
        if is_cutting and size >= _WARNINGS_CHARACTERS_MAX:
            break
        if not is_cutting and size + len(each) > _WARNINGS_CHARACTERS_MAX:
            is_cutting = True
            texts = [text[:_WARNING_CUT] for text in texts]
            size = sum(map(len, texts))
        text = each[:_WARNING_CUT] if is_cutting else each
        texts.append(text)
        size += len(text)
    return [("Warning", f"299 - {_quoted(each)}") for each in texts if each and _is_sendable(each)]


def _is_sendable(text: str) -> bool:
    """Return whether a text has no characters that are invalid in a header."""
    return not any(character < " " or "\x7f" <= character <= "\x9f" for character in text)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
