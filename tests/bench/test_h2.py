"""h2load's output, as it prints it, becomes numbers; anything else becomes an error."""

import pytest

from bench.loads import h2

RECORDED = """\
starting benchmark...
spawning thread #0: 10 total client(s). Timing-based test with 0s of warm-up time and 2s of main \
duration for measurements.
progress: 100% of clients started
Application protocol: h2c
Main benchmark duration is over for thread #0. Stopping all clients.
Stopped all clients for thread #0

finished in 2.00s, 6639.00 req/s, 616.17KB/s
requests: 13278 total, 13288 started, 13278 done, 13278 succeeded, 0 failed, 0 errored, 0 timeout
status codes: 13278 2xx, 0 3xx, 0 4xx, 0 5xx
traffic: 1.20MB (1261924) total, 26.05KB (26676) headers (space savings 94.71%), 440.75KB (451326) \
data
                     min         max         mean         sd        +/- sd
time for request:      161us     66.91ms      1.39ms      3.08ms    97.40%
time for connect:      368us       484us       438us        36us    70.00%
time to 1st byte:     4.18ms      4.84ms      4.75ms       203us    90.00%
req/s           :     659.22      670.23      663.66        3.97    70.00%
"""


def test_summary() -> None:
    assert h2.parse_summary(RECORDED) == (13278, 6639.0, 451326)


@pytest.mark.parametrize(
    ("was", "becomes"),
    [
        ("0 failed", "3 failed"),
        ("0 errored", "1 errored"),
        ("13278 succeeded", "13277 succeeded"),
        ("13278 done, 13278 succeeded", "0 done, 0 succeeded"),
    ],
)
def test_failed_requests_are_no_result(was: str, becomes: str) -> None:
    with pytest.raises(RuntimeError, match="requests: 13278 total"):
        h2.parse_summary(RECORDED.replace(was, becomes))


def test_output_without_a_summary() -> None:
    with pytest.raises(RuntimeError, match="no summary"):
        h2.parse_summary("starting benchmark...\n")


def test_log_of_requests() -> None:
    log = "1795248494456384\t200\t2098\n1795248494456434\t200\t2584\n"
    assert h2.parse_log(log) == [2.098, 2.584]


def test_body_of_a_call() -> None:
    assert h2.grpc_frame(b"abc") == b"\0\0\0\0\x03abc"


def test_missing_h2load_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    assert h2.INSTALL in (h2.missing() or "")
