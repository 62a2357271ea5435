"""When a member raises and ends its NOSPACE alarm for its disk."""

from kvstack.component.line_log.line_logger import LineLogger
from kvstore.node.maintenance.disk_alarm import CHECK_INTERVAL_NS, RETRY_NS, DiskAlarm


class Room:
    """A disk whose space the test sets."""

    def __init__(self, *, has_raised: bool = False) -> None:
        self.is_short = False
        self.shortage = "no space"
        self.log_bytes = self.rows_bytes = 0
        self.has_raised = has_raised

    def note_raised(self, has_raised: bool) -> None:  # noqa: FBT001 - a setter
        self.has_raised = has_raised

    def check(self) -> bool:
        return self.is_short


class Member:
    """What happens as time passes, one check after the other."""

    def __init__(self, *, has_raised: bool = False) -> None:
        self.room = Room(has_raised=has_raised)
        self.alarm = DiskAlarm(LineLogger([], "info"), self.room)
        self.now_ns = 0
        self.is_alarmed = False
        self.is_over_quota = False

    def step(self, after_ns: int = CHECK_INTERVAL_NS) -> bool | None:
        self.now_ns += after_ns
        return self.alarm.step(
            self.now_ns, is_alarmed=self.is_alarmed, is_over_quota=self.is_over_quota
        )


def test_the_alarm_is_raised_and_ended() -> None:
    member = Member()
    assert member.step() is None
    member.room.is_short = True
    assert member.step() is True
    assert member.room.has_raised
    member.is_alarmed = True
    assert member.step() is None
    member.room.is_short = False
    assert member.step(RETRY_NS) is False
    member.is_alarmed = False
    assert member.step() is None
    assert not member.room.has_raised


def test_a_proposal_that_is_lost_is_made_again_but_not_at_every_check() -> None:
    member = Member()
    member.room.is_short = True
    assert member.step() is True
    assert member.step() is None
    assert member.step(RETRY_NS) is True


def test_nothing_is_checked_between_the_checks() -> None:
    member = Member()
    assert member.step() is None
    member.room.is_short = True
    assert member.step(CHECK_INTERVAL_NS - 1) is None
    assert not member.room.has_raised


def test_an_alarm_that_was_raised_before_is_left_alone() -> None:
    member = Member()
    member.is_alarmed = True  # by an operator or the quota
    member.room.is_short = True
    assert member.step() is None
    member.room.is_short = False
    assert member.step(RETRY_NS) is None


def test_an_alarm_for_the_disk_is_known_after_a_restart() -> None:
    member = Member(has_raised=True)
    member.is_alarmed = True
    assert member.step() is False


def test_the_quota_keeps_an_alarm_that_the_disk_raised() -> None:
    member = Member(has_raised=True)
    member.is_alarmed = member.is_over_quota = True
    assert member.step() is None
    assert not member.room.has_raised


def test_an_alarm_that_an_operator_ended_is_raised_again_while_the_disk_is_full() -> None:
    member = Member()
    member.room.is_short = True
    assert member.step() is True
    member.is_alarmed = True
    assert member.step() is None
    member.is_alarmed = False
    assert member.step(RETRY_NS) is True


def test_an_alarm_of_an_operator_after_that_of_the_disk_ended_stays() -> None:
    member = Member(has_raised=True)
    assert member.step() is None  # it was ended while the member was down
    member.is_alarmed = True
    assert member.step(RETRY_NS) is None
