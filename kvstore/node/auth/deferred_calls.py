"""Calls with a token that this member does not know yet, deferred until it does.

A simple token ends in the log index it was assigned after. A client that got it from one member may
send it to another that has not applied that index yet. Its calls, and the streams it opened with
all their messages, are deferred until the index is applied; then they are put in front of the inbox
as if they had just arrived. After the request timeout they are released as well, to be refused.

Only unknown tokens are deferred, and no more than DEFERRED_MAX calls and frames at once: beyond
that a call is not deferred, and is refused for its token.
"""

from typing import Final

from kvstore.auth.tokens import Tokens
from kvstore.batch import Inbox, Metadata

DEFERRED_MAX: Final = 10_000  # calls, streams and frames

_BEARER: Final = "Bearer "


def token_of(metadata: Metadata) -> str | None:
    """Return the token of a call, under either of the names clients use."""
    token = metadata.get("token")
    if token is None:
        token = metadata.get("authorization")
    return None if token is None else token.removeprefix(_BEARER)


class _Deferred:
    """One deferred call or stream."""

    __slots__ = ("frames", "half_closed", "index", "metadata", "method", "request", "since_ns")

    def __init__(
        self, index: int, since_ns: int, method: int, request: bytes | None, metadata: Metadata
    ) -> None:
        self.index = index
        self.since_ns = since_ns
        self.method = method
        self.request = request  # None: a stream of messages
        self.metadata = metadata
        self.frames: list[bytes] = []
        self.half_closed = False


class DeferredCalls:
    """Calls and streams that wait for an index to be applied."""

    def __init__(self, tokens: Tokens, timeout_ns: int) -> None:
        self._tokens = tokens
        self._timeout_ns = timeout_ns
        self._deferred: dict[int, _Deferred] = {}
        self._count = 0

    @property
    def is_busy(self) -> bool:
        """Whether anything is deferred."""
        return bool(self._deferred)

    def has_ready(self, applied: int) -> bool:
        """Return whether anything could be released at once."""
        return any(each.index <= applied for each in self._deferred.values())

    def filter(self, inbox: Inbox, applied: int) -> None:
        """Remove calls that must wait from the inbox, and add those that need no longer wait."""
        for gone in inbox.gone:
            self._remove(gone)
        self._defer_new(inbox, applied)
        if self._deferred:
            self._add_messages(inbox)
            self._release(inbox, applied)

    def _defer_new(self, inbox: Inbox, applied: int) -> None:
        unknown = set()
        for call_id, metadata in inbox.metadata.items():
            token = token_of(metadata)
            if token is not None and self._tokens.waits_for(token) > applied:
                unknown.add(call_id)
        if not unknown:
            return
        calls, opened = inbox.calls, inbox.opened
        inbox.calls, inbox.opened = [], []
        for call in calls:
            if call[0] not in unknown or not self._defer(call[0], call[1], call[2], inbox):
                inbox.calls.append(call)
        for stream in opened:
            if stream[0] not in unknown or not self._defer(*stream, None, inbox):
                inbox.opened.append(stream)

    def _defer(self, call_id: int, method: int, request: bytes | None, inbox: Inbox) -> bool:
        if self._count >= DEFERRED_MAX:
            return False
        metadata = inbox.metadata.pop(call_id)
        index = self._tokens.waits_for(token_of(metadata) or "")
        self._deferred[call_id] = _Deferred(index, inbox.now_ns, method, request, metadata)
        self._count += 1
        return True

    def _add_messages(self, inbox: Inbox) -> None:
        """Keep the messages of deferred streams; one with too many is released, to be refused."""
        if any(stream_id in self._deferred for stream_id, _ in inbox.frames):
            frames, inbox.frames = inbox.frames, []
            for stream_id, message in frames:
                deferred = self._deferred.get(stream_id)
                if deferred is None:
                    inbox.frames.append((stream_id, message))
                    continue
                deferred.frames.append(message)
                self._count += 1
                if self._count > DEFERRED_MAX:
                    deferred.index = 0
        half_closed, inbox.half_closed = inbox.half_closed, []
        for stream_id in half_closed:
            if stream_id in self._deferred:
                self._deferred[stream_id].half_closed = True
            else:
                inbox.half_closed.append(stream_id)

    def _release(self, inbox: Inbox, applied: int) -> None:
        ready = [
            call_id
            for call_id, deferred in self._deferred.items()
            if deferred.index <= applied or inbox.now_ns - deferred.since_ns >= self._timeout_ns
        ]
        first = Inbox()
        for call_id in ready:
            deferred = self._remove(call_id)
            if deferred is None:
                continue
            inbox.metadata[call_id] = deferred.metadata
            if deferred.request is None:
                first.opened.append((call_id, deferred.method))
            else:
                first.calls.append((call_id, deferred.method, deferred.request))
            first.frames += [(call_id, message) for message in deferred.frames]
            if deferred.half_closed:
                inbox.half_closed.append(call_id)
        if ready:
            inbox.calls = first.calls + inbox.calls
            inbox.opened = first.opened + inbox.opened
            inbox.frames = first.frames + inbox.frames

    def _remove(self, call_id: int) -> _Deferred | None:
        deferred = self._deferred.pop(call_id, None)
        if deferred is not None:
            self._count -= 1 + len(deferred.frames)
        return deferred
