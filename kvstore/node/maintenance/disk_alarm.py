"""Raises this member's NOSPACE alarm while its disk is too full, and ends it afterwards.

    disk short, no alarm of ours           raise it, and record that the disk is the reason
    disk has room, the alarm is so noted   end it
    disk has room, it was raised by the    leave it to the quota's rules (`space`), or to the
    quota or by an operator                operator

While the disk is short, writes that grow the store are refused at admission, before the alarm is
applied as well: each would take some of the space that is kept back.
"""

from typing import Final

from kvstack.component.logger import Logger
from kvstack.component.units import MILLISECOND_NS, SECOND_NS
from kvstore.node.ports import DiskRoom

CHECK_INTERVAL_NS: Final = 500 * MILLISECOND_NS
RETRY_NS: Final = 5 * SECOND_NS


class DiskAlarm:
    """Watches the disk of one member."""

    def __init__(self, logger: Logger, room: DiskRoom) -> None:
        self._logger = logger
        self._room = room
        self._next_ns = 0
        self._proposed_ns = -RETRY_NS
        self._was_short = False

    def step(self, now_ns: int, *, is_alarmed: bool, is_over_quota: bool) -> bool | None:
        """Check the disk if it is time; return True to raise the alarm, False to end it, or None.

        is_alarmed: this member's alarm is raised. is_over_quota: the quota keeps it raised.
        """
        if now_ns < self._next_ns:
            return None
        self._next_ns = now_ns + CHECK_INTERVAL_NS
        room = self._room
        is_short = room.check()
        self._log(is_short=is_short)
        if is_short == is_alarmed:
            if not is_short:
                room.note_raised(False)  # ended: by this member, or by an operator
            return None
        if not is_short and (not room.has_raised or is_over_quota):
            room.note_raised(False)
            return None
        if now_ns - self._proposed_ns < RETRY_NS:
            return None
        self._proposed_ns = now_ns
        if is_short:
            room.note_raised(True)
        return is_short

    def _log(self, *, is_short: bool) -> None:
        if is_short == self._was_short:
            return
        self._was_short = is_short
        if is_short:
            self._logger.warning(
                "the disk is too full: writes that need space are refused until space is freed",
                reason=self._room.shortage,
            )
        else:
            self._logger.info("the disk has enough space again")
