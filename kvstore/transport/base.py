"""The interface between sockets and the turn: poll a batch in, flush a batch out.

    poll(timeout) ──► Inbox ──► Node.turn ──► Outbox ──► flush(outbox)

A transport owns connections, HTTP/2 and gRPC framing. It knows the methods (`kvstore.wire.rpc`)
but not their meaning: requests and replies are bytes. The transport assigns ids, from 1 on, unique
while the process runs; unary calls and streams share one sequence.

- A **unary** or **server-stream** call arrives once, in `inbox.calls`, with its whole request.
- A **bidi stream** arrives in `inbox.opened`, then its messages in `inbox.frames`, in order. The
  client's half-close arrives in `inbox.half_closed` after its last frame.
- A call or stream whose client went away (cancel, deadline, reset, lost connection) arrives in
  `inbox.gone`; whatever is flushed for it later is dropped silently.
- An **HTTP request that is not gRPC** (HTTP/1.1, or HTTP/2 of another content type) arrives once,
  in `inbox.requests`, if the transport serves them. A body of a known length comes with it; any
  other body (None) comes in `inbox.frames` under the same id, cut anywhere, and its end in
  `inbox.half_closed`. The answer is one of `outbox.responses`: with its whole body, or (body None)
  followed by deliveries, which are sent as they are until the id's end. Code 0 is an orderly end;
  any other breaks the body off, so that the client sees that it is incomplete. Request and answer
  are independent: either may be streamed, and the answer may begin before the request has ended.
  A request for an upgrade to `websocket` has body None and no frames. Once it is answered with 101
  (body None), its connection is a stream of bytes both ways, and the end closes it. Any other
  answer is an ordinary one.
  Ids, `gone`, backlog and limits are as for streams. Headers are in order, names in lower case. The
  transport adds `:scheme` ("http" or "https"), `:peer` (the client's address and port, or the path
  of a unix socket) and, for a client with a verified certificate, `tls-common-name`.
- A reply or delivery above the message limit is replaced by an error to the client, and its stream
  is gone.
- `inbox.backlog` has the number of unsent bytes of each stream that has any.
"""

from typing import Protocol

from kvstore.batch import Inbox, Outbox


class Transport(Protocol):
    """Carries calls and answers; used by one thread, the one that runs the turn."""

    def poll(self, timeout_s: float) -> Inbox:
        """Wait until something arrives, wake() is called or the time is over; return all of it."""
        ...

    def flush(self, outbox: Outbox) -> None:
        """Send everything in the outbox; never waits for a client."""
        ...

    def wake(self) -> None:
        """Make a waiting poll return; from any thread or signal handler."""
        ...

    def peer_of(self, call_id: int) -> str | None:
        """Return the client's address of a call; None when it is no longer known.

        It is known while the call is open and for some time after. That of a client at a unix
        socket is "@".
        """
        ...

    def drain(self) -> None:
        """Accept nothing new from clients, as far as possible; open calls and streams go on.

        Poll and flush as before until is_drained or a time limit; then stop.
        """
        ...

    @property
    def is_drained(self) -> bool:
        """Whether, since drain(), every call in flight is answered.

        Unary calls, server streams and HTTP requests count. Streams that last (bidi streams, HTTP
        answers with a streamed body) do not.
        """
        ...

    def stop(self, grace_s: float) -> None:
        """Refuse new calls, send what was flushed for up to grace_s, then close everything."""
        ...
