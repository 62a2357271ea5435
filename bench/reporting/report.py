"""Results on disk: one JSON file a scenario, one Markdown page made from all of them.

    results/keys-1m.json ┐
    results/rates.json   ├──► results/README.md      medians, [min - max], ratio, target
    ...                  ┘                           and drawings of `bench.reporting.plot`

The page is made anew from whatever files are there, so scenarios may be run one at a time; each
table names the machine and commit it was measured on.
"""

import json
from pathlib import Path
from typing import Any, Final

from bench.reporting import plot
from bench.reporting.figures import CONTENDERS, OURS, PEER
from bench.run import Run, Scenario

RESULTS: Final = Path(__file__).parents[1] / "results"
_DRAWINGS: Final = {
    "rates": ("load.svg", plot.svg, "Puts: throughput and latency over concurrency"),
    "quick": ("quick.svg", plot.ratios, "Every row: ours over etcd's"),
}
_HEAD: Final = """\
# Measured beside real etcd

Both servers on the same machine and disk, both syncing every write before they answer, taking turns
within one run. Each cell is the median of the rounds, with the smallest and the greatest; the ratio
is ours over etcd's. Written by `make bench`; do not edit.
"""


def result(scenario: Scenario, run: Run, machine: dict[str, Any]) -> dict[str, Any]:
    """Return everything about one run, ready for JSON."""
    return {
        "scenario": scenario.name,
        "title": scenario.title,
        "summary": scenario.summary,
        "columns": list(scenario.columns),
        "rounds": run.round_count,
        "machine": machine,
        "notes": run.notes,
        "figures": run.figures.rows(),
    }


def write(directory: Path, found: dict[str, Any]) -> Path:
    """Write a result and the page of all results; return the JSON file's path."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{found['scenario']}.json"
    path.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    return path


def write_page(directory: Path, order: list[str]) -> Path:
    """Make the page from the files of directory; order: the names of the scenarios."""
    paths = [directory / f"{name}.json" for name in order]
    results = [json.loads(path.read_text()) for path in paths if path.exists()]
    directory.mkdir(parents=True, exist_ok=True)
    page = directory / "README.md"
    drawn = _draw(directory, results)
    page.write_text("\n".join([_HEAD, *drawn, *(section(each) for each in results)]))
    return page


def _draw(directory: Path, results: list[dict[str, Any]]) -> list[str]:
    """Draw what can be drawn; return the lines of the page that show it."""
    lines: list[str] = []
    for each in results:
        if each["scenario"] not in _DRAWINGS:
            continue
        name, draw, text = _DRAWINGS[each["scenario"]]
        if (picture := draw(each["figures"])) is not None:
            (directory / name).write_text(picture)
            lines += [f"![{text}]({name})", ""]
    return lines


def section(found: dict[str, Any]) -> str:
    """Return the Markdown of one scenario."""
    rounds = f"{found['rounds']} round{'s' * (found['rounds'] != 1)}"
    ours, theirs = found.get("columns", CONTENDERS)
    lines = [
        f"## {found['title']}",
        "",
        f"{found['summary']}; {rounds}. {machine_line(found['machine'])}",
        "",
        f"| measure | {ours} | {theirs} | ratio | target |",
        "|---|---|---|---|---|",
        *(row_line(row) for row in found["figures"] if not row["detail"]),
        "",
        *(f"- {note}" for note in found["notes"]),
        "",
    ]
    return "\n".join(lines)


def machine_line(machine: dict[str, Any]) -> str:
    """Return the machine in one line."""
    return (
        f"`{machine['commit']}`, {machine['date']}, {machine['cpu']} ({machine['cores']} cores,"
        f" {machine['memory_mib']} MiB), Linux {machine['kernel']}, {machine['disk']}"
        f" (fdatasync {machine['fdatasync_ms']:g} ms), Python {machine['python']},"
        f" etcd {machine['etcd']}, load average before {machine['load_average']:.1f}."
    )


def row_line(row: dict[str, Any]) -> str:
    """Return one measure as a row of a table."""
    name = f"{row['measure']} ({row['unit']})" if row["unit"] else row["measure"]
    found = "" if row["ratio"] is None else ratio(row["ratio"])
    cells = [name, cell(row[OURS]), cell(row[PEER]), found, target(row)]
    return f"| {' | '.join(cells)} |"


def cell(values: dict[str, Any]) -> str:
    """Return median and spread: "1.87 [1.85 - 1.90]"."""
    if not values:
        return "-"
    median, low, high = (number(values[key]) for key in ("median", "min", "max"))
    return median if low == high else f"{median} [{low} - {high}]"


def number(value: float) -> str:
    """Return a number with three digits that count, whole from 100 on."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def ratio(value: float) -> str:
    """Return a ratio with two decimals, a very small one with three."""
    return f"{value:.2f}" if value >= 0.1 else f"{value:.3f}"


def target(row: dict[str, Any]) -> str:
    """Return the target or limit, and whether it is met; a limit has the measure's unit."""
    limit = row.get("limit")
    bound = row["target"] if limit is None else limit
    if bound is None:
        return ""
    sign = "≤" if row["better"] == "lower" else "≥"
    unit = "" if limit is None else f" {row['unit']}"
    verdict = {True: "met", False: "**missed**", None: "no ratio"}[row["met"]]
    return f"{sign} {bound:g}{unit}: {verdict}"
