"""Calls whose token this member cannot know yet, kept back until it can.

A simple token ends in the log index it was assigned after, and a client that got it from one member
may show it to another that has not applied so far. Its calls, and the streams it opened with all
that came on them, wait until that index is applied; then they are put in front of the inbox as if
they had just arrived. What has waited for the request timeout goes on as well, to be refused.

Only unknown tokens are looked at, and no more than WAITING_MAX calls and frames wait at once:
others are not kept back, and are refused for their token.
"""

from typing import Final

from kvstore.auth.tokens import Tokens
from kvstore.batch import Inbox, Metadata

WAITING_MAX: Final = 10_000  # calls, streams and frames

_BEARER: Final = "Bearer "


def token_of(metadata: Metadata) -> str | None:
    """Return the token of a call, under either of the names clients use."""
    token = metadata.get("token")
    if token is None:
        token = metadata.get("authorization")
    return None if token is None else token.removeprefix(_BEARER)


class _Late:
    """One call or stream that waits."""

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


class Waiting:
    """What waits for the log."""

    def __init__(self, tokens: Tokens, timeout_ns: int) -> None:
        self._tokens = tokens
        self._timeout_ns = timeout_ns
        self._late: dict[int, _Late] = {}
        self._count = 0

    @property
    def is_busy(self) -> bool:
        """Whether anything waits."""
        return bool(self._late)

    def has_ready(self, applied: int) -> bool:
        """Tell whether anything could go on at once."""
        return any(late.index <= applied for late in self._late.values())

    def sift(self, inbox: Inbox, applied: int) -> None:
        """Take what must wait out of the inbox, and put in what need not any more."""
        for gone in inbox.gone:
            self._drop(gone)
        self._keep_back(inbox, applied)
        if self._late:
            self._add_messages(inbox)
            self._let_go(inbox, applied)

    def _keep_back(self, inbox: Inbox, applied: int) -> None:
        late = set()
        for call_id, metadata in inbox.metadata.items():
            token = token_of(metadata)
            if token is not None and self._tokens.waits_for(token) > applied:
                late.add(call_id)
        if not late:
            return
        calls, opened = inbox.calls, inbox.opened
        inbox.calls, inbox.opened = [], []
        for call in calls:
            if call[0] not in late or not self._hold(call[0], call[1], call[2], inbox):
                inbox.calls.append(call)
        for stream in opened:
            if stream[0] not in late or not self._hold(*stream, None, inbox):
                inbox.opened.append(stream)

    def _hold(self, call_id: int, method: int, request: bytes | None, inbox: Inbox) -> bool:
        if self._count >= WAITING_MAX:
            return False
        metadata = inbox.metadata.pop(call_id)
        index = self._tokens.waits_for(token_of(metadata) or "")
        self._late[call_id] = _Late(index, inbox.now_ns, method, request, metadata)
        self._count += 1
        return True

    def _add_messages(self, inbox: Inbox) -> None:
        """Keep what came on streams that wait; one with too much is let go, to be refused."""
        if any(stream_id in self._late for stream_id, _ in inbox.frames):
            frames, inbox.frames = inbox.frames, []
            for stream_id, message in frames:
                late = self._late.get(stream_id)
                if late is None:
                    inbox.frames.append((stream_id, message))
                    continue
                late.frames.append(message)
                self._count += 1
                if self._count > WAITING_MAX:
                    late.index = 0
        half_closed, inbox.half_closed = inbox.half_closed, []
        for stream_id in half_closed:
            if stream_id in self._late:
                self._late[stream_id].half_closed = True
            else:
                inbox.half_closed.append(stream_id)

    def _let_go(self, inbox: Inbox, applied: int) -> None:
        ready = [
            call_id
            for call_id, late in self._late.items()
            if late.index <= applied or inbox.now_ns - late.since_ns >= self._timeout_ns
        ]
        first = Inbox()
        for call_id in ready:
            late = self._drop(call_id)
            if late is None:
                continue
            inbox.metadata[call_id] = late.metadata
            if late.request is None:
                first.opened.append((call_id, late.method))
            else:
                first.calls.append((call_id, late.method, late.request))
            first.frames += [(call_id, message) for message in late.frames]
            if late.half_closed:
                inbox.half_closed.append(call_id)
        if ready:
            inbox.calls = first.calls + inbox.calls
            inbox.opened = first.opened + inbox.opened
            inbox.frames = first.frames + inbox.frames

    def _drop(self, call_id: int) -> _Late | None:
        late = self._late.pop(call_id, None)
        if late is not None:
            self._count -= 1 + len(late.frames)
        return late
