"""The early warning before the quota, and the end of the alarm once alarm is back."""

from kvstore.node.maintenance.quota_alarm import CHECK_INTERVAL_NS, RETRY_NS, QuotaAlarm

LIMIT = 1000


class Logger:
    """Keeps the logged lines."""

    def __init__(self) -> None:
        self.said: list[tuple[str, dict[str, object]]] = []

    def _say(self, msg: str, **fields: object) -> None:
        self.said.append((msg, fields))

    debug = info = warning = error = _say


def _percents(logger: Logger) -> list[object]:
    return [fields["percent"] for _, fields in logger.said if "percent" in fields]


def test_each_threshold_is_warned_of_once_on_the_way_up() -> None:
    logger = Logger()
    alarm = QuotaAlarm(logger, LIMIT, is_alarmed=False)
    for step, size in enumerate((100, 790, 800, 810, 900, 960, 990)):
        alarm.step(step * CHECK_INTERVAL_NS, size, is_alarmed=False)
    assert _percents(logger) == [80, 90, 96]


def test_a_threshold_is_warned_of_again_after_the_size_fell_below_it() -> None:
    logger = Logger()
    alarm = QuotaAlarm(logger, LIMIT, is_alarmed=False)
    for step, size in enumerate((850, 100, 850)):
        alarm.step(step * CHECK_INTERVAL_NS, size, is_alarmed=False)
    assert _percents(logger) == [85, 85]


def test_the_own_alarm_ends_once_below_the_limit() -> None:
    alarm = QuotaAlarm(Logger(), LIMIT, is_alarmed=False)
    alarm.ran_out()
    assert not alarm.step(0, 1000, is_alarmed=True)
    assert not alarm.step(CHECK_INTERVAL_NS, 900, is_alarmed=True)
    assert alarm.step(2 * CHECK_INTERVAL_NS, 899, is_alarmed=True)


def test_ending_it_is_tried_again_but_not_at_once() -> None:
    alarm = QuotaAlarm(Logger(), LIMIT, is_alarmed=False)
    alarm.ran_out()
    assert alarm.step(0, 10, is_alarmed=True)
    assert not alarm.step(CHECK_INTERVAL_NS, 10, is_alarmed=True)
    assert alarm.step(RETRY_NS, 10, is_alarmed=True)


def test_an_alarm_from_before_the_start_is_own_if_space_was_short_then() -> None:
    alarm = QuotaAlarm(Logger(), LIMIT, is_alarmed=True)
    assert not alarm.step(0, 950, is_alarmed=True)
    assert alarm.step(CHECK_INTERVAL_NS, 10, is_alarmed=True)
    other = QuotaAlarm(Logger(), LIMIT, is_alarmed=True)
    assert not other.step(0, 10, is_alarmed=True)
    assert not other.step(CHECK_INTERVAL_NS, 10, is_alarmed=True)


def test_another_members_alarm_stays() -> None:
    alarm = QuotaAlarm(Logger(), LIMIT, is_alarmed=False)
    assert not alarm.step(0, 10, is_alarmed=True)
    assert alarm.next_ns(is_alarmed=True) is None


def test_without_a_quota_there_are_no_warnings() -> None:
    logger = Logger()
    alarm = QuotaAlarm(logger, -1, is_alarmed=True)
    assert not alarm.step(0, 1 << 40, is_alarmed=True)
    assert logger.said == []
