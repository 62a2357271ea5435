"""The space left under the quota: early warnings, and the end of the NOSPACE alarm.

    0 ────────────────── 80 % ──── 90 % ── 95 % ─ quota
                          warned   warned  warned   NOSPACE: growing writes are refused
    ◄──── below 90 %: this member's own alarm ends ────┘

The quota counts pages in use: pages freed by deletes and compactions are available at once, without
a defragmentation. Only an alarm about this member's own lack of space is ended: one it raised for a
write that did not fit, or one that was raised when it started with little space left.
"""

from typing import Final

from kvstack.component.logger import Logger

WARN_PERCENTS: Final = (80, 90, 95)
CLEAR_PERCENT: Final = 90
CHECK_INTERVAL_NS: Final = 500_000_000
RETRY_NS: Final = 5 * 10**9


class QuotaAlarm:
    """Watches the size of one member's database."""

    def __init__(self, logger: Logger, limit_bytes: int, *, is_alarmed: bool) -> None:
        """Watch for limit_bytes (below 0: none); is_alarmed: the alarm is raised at the start."""
        self._logger = logger
        self._limit_bytes = limit_bytes
        self._is_own = False
        self._is_inherited = is_alarmed
        self._warned_percent = 0
        self._next_ns = 0
        self._retry_ns = 0

    def ran_out(self) -> None:
        """Note that this member raises the alarm for lack of space."""
        self._is_own = True

    @property
    def keeps_alarm(self) -> bool:
        """Whether the alarm is for this member's lack of space under the quota."""
        return self._is_own

    def step(self, now_ns: int, in_use_bytes: int, *, is_alarmed: bool) -> bool:
        """Check the size if it is time; return whether the alarm is to be ended now."""
        if now_ns < self._next_ns or self._limit_bytes < 0:
            return False
        self._next_ns = now_ns + CHECK_INTERVAL_NS
        percent = 100 * in_use_bytes // self._limit_bytes
        self._warn(percent, in_use_bytes)
        if self._is_inherited:
            self._is_inherited = False
            self._is_own |= percent >= CLEAR_PERCENT
        if not is_alarmed:
            # A proposed alarm may not be applied yet; one that was raised is known here.
            return False
        if not self._is_own or percent >= CLEAR_PERCENT or now_ns < self._retry_ns:
            return False
        self._retry_ns = now_ns + RETRY_NS
        self._logger.info(
            "there is enough space again: ending the NOSPACE alarm",
            in_use_bytes=in_use_bytes,
            quota_bytes=self._limit_bytes,
        )
        return True

    def _warn(self, percent: int, in_use_bytes: int) -> None:
        reached = max((each for each in WARN_PERCENTS if percent >= each), default=0)
        if reached > self._warned_percent:
            self._logger.warning(
                "the database is close to its quota; writes are refused when it is reached",
                in_use_bytes=in_use_bytes,
                quota_bytes=self._limit_bytes,
                percent=percent,
            )
        self._warned_percent = reached

    def next_ns(self, *, is_alarmed: bool) -> int | None:
        """Return when the next check is due while this member's own alarm is raised, else None."""
        return self._next_ns if is_alarmed and self._is_own else None
