"""Notices of the client port: a flood of one kind is one line and a count."""

from typing_extensions import override

from kvstack.component.clock import SystemClock
from kvstore.server.notices import INTERVAL_S, Notices
from tests.support.list_log import ListLog


class StoppedClock(SystemClock):
    now_ns = 1

    @override
    def monotonic_ns(self) -> int:
        return self.now_ns


def lines_of(log: ListLog) -> list[dict[str, object]]:
    """Return what was logged, all of it warnings."""
    assert len(log.of("warning")) == len(log.lines)
    return [{"msg": msg, **fields} for msg, fields in log.of("warning")]


def test_a_flood_is_one_line_and_a_count() -> None:
    clock, log = StoppedClock(), ListLog()
    notices = Notices(log, clock)
    for port in range(100):
        notices.add(f"connection closed: handshake: TLS: no certificate: 10.0.0.7:{port}")
    notices.add("connection closed: keep-alive: too many pings: 10.0.0.7:1")
    assert [line["omitted"] for line in lines_of(log)] == [0, 0]
    assert lines_of(log)[0] == {
        "msg": "rejected connection on client endpoint",
        "remote_addr": "10.0.0.7:0",
        "error": "TLS: no certificate",
        "omitted": 0,
    }
    clock.now_ns += INTERVAL_S * 1_000_000_000
    notices.add("connection closed: handshake: TLS: no certificate: 10.0.0.8:1")
    assert lines_of(log)[-1]["omitted"] == 99


def test_reasons_of_strangers_making_are_few_kinds() -> None:
    log = ListLog()
    notices = Notices(log, StoppedClock())
    for number in range(1000):
        notices.add(f"connection closed: handshake: certificate of {number}: 10.0.0.7:1")
    assert len(log.lines) < 100
