"""The table of docs/performance.md: every measure that has a target, from the load results.

It stands between two marks, and is written anew with the results; everything else is left alone.
"""

import json
from pathlib import Path
from typing import Any, Final

from bench.reporting.figures import OURS, PEER
from bench.reporting.report import number, ratio, target

PAGE: Final = Path(__file__).parents[2] / "docs" / "performance.md"
BEGIN: Final = "<!-- written by make bench: begin -->"
END: Final = "<!-- written by make bench: end -->"
SCENARIOS: Final = ("rates", "fanout", "latency", "cluster-rates", "catch-up")


def write(page: Path, results: Path) -> bool:
    """Put the table into page; return whether there were results. ValueError without marks."""
    paths = [results / f"{name}.json" for name in SCENARIOS]
    found = [json.loads(path.read_text()) for path in paths if path.exists()]
    if not found:
        return False
    before, begin, rest = page.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{page} has no place for the results: {BEGIN} ... {END}")
    page.write_text(f"{before}{BEGIN}\n{table(found)}\n{END}{after}")
    return True


def table(results: list[dict[str, Any]]) -> str:
    """Return the Markdown table of the measures with targets, and where they were measured."""
    machine = results[0]["machine"]
    counts = sorted({each["rounds"] for each in results})
    rounds = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    rows = [row for each in results for row in each["figures"] if row["target"] is not None]
    return "\n".join(
        [
            f"| measured {machine['date']} | {OURS} | {PEER} {machine['etcd']} | ratio | target |",
            "|---|---|---|---|---|",
            *(_line(row) for row in rows),
            "",
            f"Medians of {rounds} rounds, both servers taking turns on one machine:"
            f" {machine['cpu']}, {machine['cores']} cores, {machine['disk']} (fdatasync"
            f" {machine['fdatasync_ms']:g} ms), Python {machine['python']}, load average before"
            f" {machine['load_average']:.1f}.",
        ]
    )


def _line(row: dict[str, Any]) -> str:
    medians = [number(row[name]["median"]) if row[name] else "-" for name in (OURS, PEER)]
    found = "" if row["ratio"] is None else ratio(row["ratio"])
    return f"| {row['measure']} ({row['unit']}) | {' | '.join(medians)} | {found} | {target(row)} |"
