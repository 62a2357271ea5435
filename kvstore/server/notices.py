"""Notices of the client port, logged with a rate limit.

A hostile client can cause a notice with every connection. Each kind of notice is logged at most
once in `INTERVAL_S`; the next line of its kind has the number of omitted ones.

    "connection closed: keep-alive: too many pings: 10.0.0.7:4711"
     └──────────── the kind ─────┘
    "connection closed: handshake: TLS: received fatal alert: UnknownCA: 10.0.0.7:4711"
      ─► etcd's "rejected connection on client endpoint"; each reason is a kind
"""

from typing import Final

from kvstack.component.clock import Clock
from kvstack.component.logger import Logger
from kvstack.component.net.tls_errors import go_error_text

INTERVAL_S: Final = 10
_KIND_PARTS: Final = 2
_KINDS_MAX: Final = 64  # a reason may contain text of the client's certificate
_HANDSHAKE: Final = "connection closed: handshake: "
_REJECTED: Final = "rejected connection on client endpoint"


class Notices:
    """Writes notices to the log, with a rate limit."""

    def __init__(self, logger: Logger, clock: Clock) -> None:
        self._logger = logger
        self._clock = clock
        # kind → (monotonic ns of the last line, notices omitted since)
        self._logged: dict[str, tuple[int, int]] = {}

    def add(self, text: str) -> None:
        """Log a notice, or count it; there are few kinds, because they are the transport's."""
        if text.startswith(_HANDSHAKE):
            reason, _, remote = text[len(_HANDSHAKE) :].rpartition(": ")
            reason = go_error_text(reason)
            self._log(_REJECTED + reason, _REJECTED, remote_addr=remote, error=reason)
            return
        kind = ": ".join(text.split(": ", _KIND_PARTS)[:_KIND_PARTS])
        self._log(kind, "client port", notice=text)

    def _log(self, kind: str, msg: str, **fields: str) -> None:
        if len(self._logged) >= _KINDS_MAX and kind not in self._logged:
            kind = msg
        now_ns = self._clock.monotonic_ns()
        last_ns, omitted = self._logged.get(kind, (None, 0))
        if last_ns is not None and now_ns - last_ns < INTERVAL_S * 1_000_000_000:
            self._logged[kind] = (last_ns, omitted + 1)
            return
        self._logged[kind] = (now_ns, 0)
        self._logger.warning(msg, **fields, omitted=omitted)
