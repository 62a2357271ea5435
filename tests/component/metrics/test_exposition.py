"""The text format: Go's numbers, labels, histograms, order, and what a parser makes of it."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kvstack.component.metrics.exposition import Family, FamilyKind, collect, labels, number, render
from kvstack.component.metrics.histograms import Histogram


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (2, "2"),
        (-1, "-1"),
        (999_999, "999999"),
        (1_000_000, "1e+06"),
        (2_147_483_648, "2.147483648e+09"),
        (2**64 - 1, "1.8446744073709552e+19"),
        (0.0, "0"),
        (1.0, "1"),
        (0.001, "0.001"),
        (0.0001, "0.0001"),
        (0.00001, "1e-05"),
        (6.380000000000001e-06, "6.380000000000001e-06"),
        (123456.75, "123456.75"),
        (8.388608e06, "8.388608e+06"),
        (-0.5, "-0.5"),
        (float("inf"), "+Inf"),
        (float("-inf"), "-Inf"),
        (float("nan"), "NaN"),
    ],
)
def test_numbers_are_written_as_go_does(value: float, text: str) -> None:
    assert number(value) == text


def histogram(*values: float) -> Histogram:
    made = Histogram((0.5, 1.0))
    for value in values:
        made.add(value)
    return made


def test_a_page() -> None:
    page = render(
        [
            (
                "b_seconds",
                FamilyKind.HISTOGRAM,
                "How long.",
                {labels(op="x"): histogram(0.5, 0.75, 9)},
            ),
            ("a_total", FamilyKind.COUNTER, 'Back\\slash and\nline "quoted".', 3),
            ("c", FamilyKind.GAUGE, "Labelled.", {labels(k="2"): 2, labels(k='1"\n\\'): 1.5}),
            ("d", FamilyKind.GAUGE, "Nothing to say.", {}),
        ]
    )
    assert page.decode() == (
        '# HELP a_total Back\\\\slash and\\nline "quoted".\n'
        "# TYPE a_total counter\n"
        "a_total 3\n"
        "# HELP b_seconds How long.\n"
        "# TYPE b_seconds histogram\n"
        'b_seconds_bucket{op="x",le="0.5"} 1\n'
        'b_seconds_bucket{op="x",le="1"} 2\n'
        'b_seconds_bucket{op="x",le="+Inf"} 3\n'
        'b_seconds_sum{op="x"} 10.25\n'
        'b_seconds_count{op="x"} 3\n'
        "# HELP c Labelled.\n"
        "# TYPE c gauge\n"
        'c{k="1\\"\\n\\\\"} 1.5\n'
        'c{k="2"} 2\n'
    )


def test_prometheus_reads_it() -> None:
    page = render([("c", FamilyKind.GAUGE, "Labelled.", {labels(k='1"\n\\'): 1.5})])
    (family,) = text_string_to_metric_families(page.decode())
    assert family.samples[0].labels == {"k": '1"\n\\'}
    assert family.samples[0].value == 1.5


def test_a_reading_does_not_change_afterwards() -> None:
    kept = histogram(0.1)
    by_label = {"": kept}
    families = [
        Family[None]("x", FamilyKind.HISTOGRAM, "", lambda _: kept),
        Family[None]("y", FamilyKind.HISTOGRAM, "", lambda _: by_label),
    ]
    readings = collect(families, None)
    before = render(readings)
    kept.add(0.1)
    assert render(readings) == before
