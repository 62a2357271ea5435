"""The bars of the ratios: ahead or behind by their colour, from the line at 1."""

import xml.etree.ElementTree as ET
from typing import Any

from bench.reporting import plot
from bench.reporting.figures import OURS, PEER, Better, Figures, Measure

SVG = "{http://www.w3.org/2000/svg}"


def rows(*ratios: tuple[str, Better, float]) -> list[dict[str, Any]]:
    figures = Figures()
    for name, better, ratio in ratios:
        figures.add(Measure(name, "", better), OURS, ratio)
        figures.add(Measure(name, "", better), PEER, 1.0)
    return figures.rows()


def test_a_bar_for_each_ratio() -> None:
    drawn = plot.ratios(
        rows(
            ("put <1>", Better.HIGHER, 4), ("cpu", Better.LOWER, 0.25), ("get", Better.HIGHER, 0.5)
        )
    )
    assert drawn is not None
    root = ET.fromstring(drawn)
    bars = root.findall(f"{SVG}rect")[1:]
    widths = [round(float(bar.get("width", "")), 1) for bar in bars]
    assert widths == [220.0, 220.0, 110.0]  # of 440 for powers -2 to 2
    ahead, behind = bars[0].get("fill"), bars[2].get("fill")
    assert bars[1].get("fill") == ahead != behind
    texts = [each.text for each in root.iter(f"{SVG}text")]
    assert {"put <1>", "4.00", "0.25", "0.50"} <= set(texts)


def test_nothing_to_draw() -> None:
    figures = Figures()
    figures.add(Measure("put", "", Better.HIGHER), OURS, 1.0)
    assert plot.ratios(figures.rows()) is None
