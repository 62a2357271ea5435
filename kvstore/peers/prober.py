"""Probes a member periodically and measures the round trip.

Every interval_s, over a connection of its own. Results are logged and counted; no link depends on
them.
"""

import json
import threading
import time
from datetime import UTC, datetime
from typing import Final

from kvstack.component.logger import Logger
from kvstore.peers.counters import PeerCounters
from kvstore.peers.http_client import HttpConnection, PeerRequestError, dial
from kvstore.peers.status import UrlPicker
from kvstore.peers.tls import PeerTls

WARN_S: Final = 30.0
DRIFT_S_MAX: Final = 1.0


class Prober:
    """One thread per member."""

    def __init__(
        self,
        member_id: int,
        picker: UrlPicker,
        counters: PeerCounters,
        *,
        tls: PeerTls,
        dial_timeout_s: float,
        interval_s: float,
        logger: Logger,
    ) -> None:
        self._interval_s = interval_s
        self._name = f"{member_id:x}"
        self._picker = picker
        self._counters = counters
        self._tls = tls
        self._timeout_s = dial_timeout_s
        self._logger = logger
        self._warned_s = 0.0  # when a failure was last logged, and a clock drift
        self._drift_warned_s = 0.0
        self._stopping = threading.Event()
        self._thread = threading.Thread(
            target=self._run, name=f"peer-probe-{self._name}", daemon=True
        )

    def start(self) -> None:
        """Start to probe."""
        self._thread.start()

    def begin_stop(self) -> None:
        """Stop the thread; does not wait for it."""
        self._stopping.set()

    def _run(self) -> None:
        connection: HttpConnection | None = None
        while not self._stopping.wait(self._interval_s):
            url = self._picker.pick()
            try:
                if connection is None:
                    connection = dial(url, self._tls, self._timeout_s)
                self._probe(connection)
            except PeerRequestError as error:
                self._warn(str(error))
                if connection is not None:
                    connection.close()
                connection = None
            else:
                if not connection.is_reusable:
                    connection.close()
                    connection = None
        if connection is not None:
            connection.close()

    def _probe(self, connection: HttpConnection) -> None:
        begun_s = time.perf_counter()
        answer = connection.ask("GET", "/raft/probing", [], timeout_s=self._timeout_s)
        rtt_s = time.perf_counter() - begun_s
        if answer.status != 200:
            raise PeerRequestError(f"HTTP status {answer.status}: {answer.text}")
        self._counters.measured(rtt_s)
        drift_s = _drift_s(answer.body, rtt_s)
        if abs(drift_s) > DRIFT_S_MAX and begun_s - self._drift_warned_s > WARN_S:
            self._drift_warned_s = begun_s
            self._logger.warning(
                "prober found high clock drift",
                remote_peer_id=self._name,
                clock_drift_s=round(drift_s, 3),
                rtt_s=round(rtt_s, 6),
            )

    def _warn(self, error: str) -> None:
        now_s = time.perf_counter()
        if now_s - self._warned_s > WARN_S:
            self._warned_s = now_s
            self._logger.warning(
                "prober detected unhealthy status", remote_peer_id=self._name, error=error
            )


def _drift_s(body: bytes, rtt_s: float) -> float:
    """Return how far the member's clock, from {"Now": …}, is ahead of this one."""
    try:
        row = json.loads(body)
        text = str(row["Now"])
        # Go writes up to nine digits of a second, Python reads six.
        head, _, rest = text.partition(".")
        digits = len(rest) - len(rest.lstrip("0123456789"))
        theirs = datetime.fromisoformat(f"{head}.{rest[:digits][:6]:0<6}{rest[digits:] or 'Z'}")
        return (theirs - datetime.now(UTC)).total_seconds() + rtt_s / 2
    except (ValueError, KeyError, TypeError):
        return 0.0  # unreadable: no drift is reported
