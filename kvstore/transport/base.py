"""The border between sockets and the turn: poll a batch in, flush a batch out.

    poll(timeout) ──► Inbox ──► Node.turn ──► Outbox ──► flush(outbox)

A transport owns connections, HTTP/2 and gRPC framing. It knows methods (`kvstore.wire.rpc`) but
no meaning: request bodies go in as bytes, replies come out as bytes. Ids are the transport's,
from 1 on, unique for the life of the process; unary calls and streams share one space.

- A **unary** call or **server-stream** call arrives once, in `inbox.calls`, with its whole request.
- A **bidi stream** arrives in `inbox.opened`, then its messages in `inbox.frames`, in order. The
  client's half-close arrives in `inbox.half_closed` after its last frame.
- A call or stream whose client went away (cancel, deadline, reset, lost connection) arrives in
  `inbox.gone`; whatever is flushed for it later is dropped silently.
- A **request that is no gRPC** (HTTP/1.1, or HTTP/2 of another content type) arrives once, in
  `inbox.requests`, where the transport serves such. A body of a known length comes with it, whole;
  any other (body None) comes in `inbox.frames` under the same id, cut anywhere, and its end in
  `inbox.half_closed`. The answer is one of `outbox.responses`: whole, or (body None) the head of
  deliveries that leave as they are, until the id's end: code 0 is an orderly end, any other tears
  the body off, so that the client sees it is not whole. Request and answer are independent: each
  may be whole or not, and the answer may begin while the request still comes.
  A request that asks for an upgrade to `websocket` has body None and no frames, until it is
  answered with 101 (body None): then its connection is a stream of bytes both ways, and the end
  closes it. Any other answer is an ordinary one.
  Ids are of the same space, a client that goes away is gone, backlog and limits are a stream's.
  Headers are in order, names in lower case; some are the transport's own: `:scheme` ("http" or
  "https"), `:peer` (the client's address and port, or the path of a unix socket) and, for a client
  with a verified certificate, `tls-common-name`.
- A reply or delivery above the limit of one message is told to the client instead; its stream is
  gone.
- `inbox.backlog` tells, for streams above zero, how many bytes wait unsent.
"""

from typing import Protocol

from kvstore.batch import Inbox, Outbox


class Transport(Protocol):
    """A way in and out; driven by one thread, which is the one that runs the turn."""

    def poll(self, timeout_s: float) -> Inbox:
        """Wait until something arrived, wake() was called, or the time is over; take all of it."""
        ...

    def flush(self, outbox: Outbox) -> None:
        """Hand over everything of the outbox; never waits for a client."""
        ...

    def wake(self) -> None:
        """Make a waiting poll return; may be called from any thread or signal handler."""
        ...

    def peer_of(self, call_id: int) -> str | None:
        """Return the address a call came from; None when that is no longer known.

        It is known for as long as the call is open, and for some time after. A client at a unix
        socket has none: "@".
        """
        ...

    def drain(self) -> None:
        """Take nothing new from clients, as far as can be; calls in flight and streams go on.

        Poll and flush as before until is_drained, or until time is up; then stop.
        """
        ...

    @property
    def is_drained(self) -> bool:
        """Whether, since drain(), every call in flight is answered.

        Calls are unary calls, server streams and HTTP requests; streams that last (bidi, an HTTP
        answer whose body comes in deliveries) are none.
        """
        ...

    def stop(self, grace_s: float) -> None:
        """Refuse new work, let what was flushed drain for up to grace_s, then close everything."""
        ...
