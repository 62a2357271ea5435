"""The plots, as SVG made by hand; all scales are logarithmic.

rates.json ──► load.svg      puts: left, so many a second; right, milliseconds over concurrency
quick.json ──► quick.svg     a bar a measure: ours over etcd's, from the line at 1
"""

import math
from collections.abc import Iterator
from typing import Any, Final, NamedTuple
from xml.sax.saxutils import escape

from bench.reporting.figures import CONTENDERS, OURS, PEER, Better

LOAD: Final = "put"
SHAPES: Final = ("1x1", "10x1", "100x1", "100x10")
_COLOURS: Final = {OURS: "#0b6e4f", PEER: "#b5502b"}
_WIDTH, _HEIGHT, _MARGIN = 380, 240, 48
_BAR_HEIGHT, _BAR_LEFT, _BAR_WIDTH, _BARS_TOP = 22, 420, 440, 44
_HEAD: Final = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 920 340" font-family="sans-serif"'
    ' font-size="12">\n<rect width="920" height="340" fill="white"/>'
)


class Line(NamedTuple):
    """One line of a panel: a value for each of SHAPES."""

    who: str
    label: str
    values: list[float]
    dash: str


class Panel(NamedTuple):
    """One diagram; left: where it begins."""

    title: str
    left: int
    lines: list[Line]


def svg(figures: list[dict[str, Any]]) -> str | None:
    """Draw the rows of a result; None if the measures to draw are not all there."""
    rows = {row["measure"]: row for row in figures}
    names = [f"{LOAD}, {shape}" for shape in SHAPES]
    wanted = [f"{name}{what}" for name in names for what in ("", ": p50", ": p99")]
    if not all(name in rows and rows[name][who] for name in wanted for who in CONTENDERS):
        return None

    def line(who: str, what: str, dash: str) -> Line:
        values = [float(rows[f"{name}{what}"][who]["median"]) for name in names]
        return Line(who, f"{who}{what.replace(':', '')}", values, dash)

    rates = Panel("puts a second", 60, [line(who, "", "") for who in CONTENDERS])
    times = [(": p50", ""), (": p99", "5 4")]
    latencies = [line(who, what, dash) for who in CONTENDERS for what, dash in times]
    panels = [rates, Panel("latency in ms", 520, latencies)]
    return "\n".join([_HEAD, *(text for panel in panels for text in _panel(panel)), "</svg>\n"])


def ratios(figures: list[dict[str, Any]]) -> str | None:
    """Draw the ratio of each measure as a bar; None if there is none."""
    rows = [row for row in figures if row["ratio"]]
    if not rows:
        return None
    logs = [math.log2(row["ratio"]) for row in rows]
    low, high = math.floor(min(-1, *logs)), math.ceil(max(1, *logs))

    def x(power: float) -> float:
        return _BAR_LEFT + (power - low) / (high - low) * _BAR_WIDTH

    bottom = _BARS_TOP + len(rows) * _BAR_HEIGHT
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 920 {bottom + 16}"'
        ' font-family="sans-serif" font-size="12">',
        f'<rect width="920" height="{bottom + 16}" fill="white"/>',
        f'<text x="20" y="20" font-weight="bold">{OURS} / {PEER}: rates, where more is better,'
        " and CPU, where less is</text>",
    ]
    for power in range(low, high + 1):
        pen = 'stroke="#333"' if power == 0 else 'stroke="#ddd"'
        lines.append(f'<path d="M{x(power):.1f} {_BARS_TOP - 4}V{bottom}" {pen}/>')
        middle = f'x="{x(power):.1f}" y="{_BARS_TOP - 8}" text-anchor="middle"'
        lines.append(f'<text {middle} font-size="11">{2.0**power:g}</text>')
    for number, (row, log) in enumerate(zip(rows, logs, strict=True)):
        top = _BARS_TOP + number * _BAR_HEIGHT
        is_ahead = (log >= 0) == (row["better"] == Better.HIGHER)
        colour = _COLOURS[OURS if is_ahead else PEER]
        left, right = sorted((x(0), x(log)))
        lines += [
            f'<rect x="{left:.1f}" y="{top + 3}" width="{right - left:.1f}"'
            f' height="{_BAR_HEIGHT - 6}" fill="{colour}"/>',
            f'<text x="{_BAR_LEFT - 8}" y="{top + 15}" text-anchor="end">'
            f"{escape(row['measure'])}</text>",
            f'<text x="{right + 4:.1f}" y="{top + 15}" font-size="11">{row["ratio"]:.2f}</text>',
        ]
    return "\n".join([*lines, "</svg>\n"])


def _panel(panel: Panel) -> Iterator[str]:
    values = [value for line in panel.lines for value in line.values]
    low = math.floor(math.log10(max(min(values), 1e-3)))
    high = max(math.ceil(math.log10(max(*values, 1e-3))), low + 1)

    def y(value: float) -> float:
        share = (math.log10(max(value, 1e-3)) - low) / (high - low)
        return _MARGIN + _HEIGHT * (1 - share)

    def x(index: int) -> float:
        return panel.left + 40 + index * (_WIDTH - 80) / (len(SHAPES) - 1)

    yield f'<text x="{panel.left}" y="20" font-weight="bold">{panel.title}</text>'
    for power in range(low, high + 1):
        height = y(10.0**power)
        right = panel.left + _WIDTH
        yield f'<path d="M{panel.left} {height:.1f}H{right}" stroke="#ddd"/>'
        text = f'x="{panel.left - 6}" y="{height + 4:.1f}" text-anchor="end"'
        yield f"<text {text}>{10.0**power:,g}</text>"
    for index, shape in enumerate(SHAPES):
        below = _MARGIN + _HEIGHT + 18
        yield f'<text x="{x(index):.1f}" y="{below}" text-anchor="middle">{shape}</text>'
    for number, line in enumerate(panel.lines):
        points = " ".join(f"{x(i):.1f},{y(value):.1f}" for i, value in enumerate(line.values))
        pen = f'fill="none" stroke="{_COLOURS[line.who]}" stroke-width="2"'
        yield f'<polyline points="{points}" {pen} stroke-dasharray="{line.dash}"/>'
        start, base = panel.left + 10 + number * 92, _MARGIN + _HEIGHT + 42
        legend = f'points="{start},{base - 4} {start + 20},{base - 4}"'
        yield f'<polyline {legend} {pen} stroke-dasharray="{line.dash}"/>'
        yield f'<text x="{start + 24}" y="{base}" font-size="11">{line.label}</text>'
