"""Rounds become medians and ratios, ratios meet targets or miss them, and the page says so."""

from pathlib import Path
from typing import Any

import pytest

from bench.procfs import Memory, parse_stat, parse_status
from bench.reporting import report
from bench.reporting.figures import OURS, PEER, Better, Figures, Measure, percentile

LESS = Measure("restart", "s", Better.LOWER, 1.0)
MORE = Measure("rate", "calls/s", Better.HIGHER, 1.2)


def row(measure: Measure, ours: list[float], theirs: list[float]) -> dict[str, Any]:
    figures = Figures()
    for value in ours:
        figures.add(measure, OURS, value)
    for value in theirs:
        figures.add(measure, PEER, value)
    return figures.rows()[0]


def test_median_spread_and_ratio() -> None:
    found = row(LESS, [3.0, 1.0, 2.0], [4.0, 4.0])
    assert found[OURS] == {"median": 2.0, "min": 1.0, "max": 3.0, "rounds": [3.0, 1.0, 2.0]}
    assert found["ratio"] == 0.5


@pytest.mark.parametrize(
    ("measure", "ours", "met"),
    [(LESS, 2.0, True), (LESS, 2.1, False), (MORE, 2.4, True), (MORE, 2.3, False)],
)
def test_targets_bound_the_good_side(measure: Measure, ours: float, *, met: bool) -> None:
    assert row(measure, [ours], [2.0])["met"] is met


def test_a_limit_bounds_the_value_itself() -> None:
    limited = Measure("answer", "µs", Better.LOWER, limit=35.0)
    assert report.row_line(row(limited, [34.0], [])) == "| answer (µs) | 34 | - |  | ≤ 35 µs: met |"
    found = row(limited, [36.0], [72.0])
    assert (found["ratio"], found["met"]) == (0.5, False)
    assert row(limited, [], [72.0])["met"] is None


def test_no_ratio_without_the_peer() -> None:
    found = row(LESS, [1.0], [])
    assert (found["ratio"], found["met"]) == (None, None)
    assert report.row_line(found) == "| restart (s) | 1 | - |  | ≤ 1: no ratio |"


def test_row_of_the_page() -> None:
    line = report.row_line(row(MORE, [1000.0, 1500.0, 1200.0], [2000.0]))
    assert line == "| rate (calls/s) | 1,200 [1,000 - 1,500] | 2,000 | 0.60 | ≥ 1.2: **missed** |"


@pytest.mark.parametrize(
    ("value", "text"), [(1.0, "1.00"), (0.1, "0.10"), (0.0996, "0.100"), (0.004, "0.004")]
)
def test_a_small_ratio_keeps_its_meaning(value: float, text: str) -> None:
    assert report.ratio(value) == text


def test_page_of_results_in_order(tmp_path: Path) -> None:
    machine = {
        "commit": "abc",
        "date": "2026-01-02",
        "cpu": "CPU",
        "cores": 2,
        "memory_mib": 100,
        "kernel": "6.1",
        "disk": "ext4 on /dev/x",
        "fdatasync_ms": 0.2,
        "python": "3.11.7",
        "etcd": "3.5.1",
        "load_average": 0.25,
    }
    for name in ("second", "first"):
        figures = [row(LESS, [1.0], [2.0]), {**row(MORE, [1.0], [2.0]), "detail": True}]
        found = {"scenario": name, "title": f"The {name}", "summary": "Much", "rounds": 1}
        report.write(tmp_path, {**found, "machine": machine, "notes": ["So."], "figures": figures})
    page = report.write_page(tmp_path, ["first", "absent", "second"]).read_text()
    assert page.index("## The first") < page.index("## The second")
    assert "Much; 1 round. `abc`, 2026-01-02, CPU (2 cores" in page
    assert "| restart (s) | 1 | 2 | 0.50 | ≤ 1: met |\n" in page
    assert "calls/s" not in page  # a detail
    assert "- So.\n" in page


def test_percentile() -> None:
    values = [float(each) for each in range(100, 0, -1)]
    assert (percentile(values, 0.5), percentile(values, 0.99), percentile([7.0], 0.99)) == (
        51.0,
        100.0,
        7.0,
    )
    with pytest.raises(ValueError, match="no values"):
        percentile([], 0.5)


def test_process_memory() -> None:
    text = "Name:\tx\nVmRSS:\t    300 kB\nRssAnon:\t 100 kB\nRssFile:\t 200 kB\nThreads:\t3\n"
    assert parse_status(text) == Memory(300 << 10, 100 << 10, 200 << 10)


def test_process_time_whatever_the_command_is_called() -> None:
    line = "12 (a ) b) S 1 12 12 0 -1 4194304 500 0 0 0 150 25 7 8 20 0 1 0 100 1 1"
    assert parse_stat(line) == 175
