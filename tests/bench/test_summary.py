"""The plot and the table of docs/performance.md are made from results, and from nothing else."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from bench.reporting import plot, report, summary
from bench.reporting.figures import OURS, PEER, Better, Figures, Measure

MACHINE = {
    "date": "2026-01-02",
    "cpu": "CPU",
    "cores": 2,
    "disk": "ext4 on /dev/x",
    "fdatasync_ms": 0.2,
    "load_average": 0.25,
    "python": "3.11.7",
    "etcd": "3.5.1",
}


def puts() -> list[dict[str, Any]]:
    figures = Figures()
    for number, shape in enumerate(plot.SHAPES):
        for who in (OURS, PEER):
            rate = Measure(f"put, {shape}", "calls/s", Better.HIGHER, 1.2 if number == 0 else None)
            figures.add(rate, who, 1000.0 * 10**number)
            for at in ("p50", "p99"):
                figures.add(Measure(f"put, {shape}: {at}", "ms", Better.LOWER), who, 0.5)
    return figures.rows()


def write_results(directory: Path) -> None:
    found = {"scenario": "rates", "rounds": 5, "machine": MACHINE, "figures": puts()}
    (directory / "rates.json").write_text(json.dumps(found))


def test_plot_has_a_line_a_server_and_figure() -> None:
    picture = plot.svg(puts())
    assert picture is not None
    root = ET.fromstring(picture)
    lines = [each.get("points", "") for each in root if each.tag.endswith("polyline")]
    drawn = [points.split() for points in lines if points.count(",") == len(plot.SHAPES)]
    assert len(drawn) == 6  # two rates, two p50, two p99
    heights = [float(point.split(",")[1]) for point in drawn[0]]
    assert heights == sorted(heights, reverse=True)  # more is higher up


def test_no_plot_of_half_the_measures() -> None:
    assert plot.svg(puts()[:-1]) is None


def test_table_of_targets_replaces_the_last_one(tmp_path: Path) -> None:
    page = tmp_path / "performance.md"
    page.write_text(f"before\n{summary.BEGIN}\nold\n{summary.END}\nafter\n")
    write_results(tmp_path)
    assert summary.write(page, tmp_path)
    text = page.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text
    assert "| put, 1x1 (calls/s) | 1,000 | 1,000 | 1.00 | ≥ 1.2: **missed** |\n" in text
    assert "10x1" not in text  # it has no target
    assert "measured 2026-01-02" in text
    assert "Medians of 5 rounds" in text


def test_a_page_without_markers_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "performance.md"
    page.write_text("nothing\n")
    assert not summary.write(page, tmp_path)  # there are no results yet
    write_results(tmp_path)
    with pytest.raises(ValueError, match="has no place for the results"):
        summary.write(page, tmp_path)


def test_the_project_has_markers_for_its_results() -> None:
    text = summary.PAGE.read_text()
    assert text.index(summary.BEGIN) < text.index(summary.END)
    assert report.RESULTS.is_dir()
