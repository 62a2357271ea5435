"""Families with labels, as the page shows them."""

import pytest

from kvstack.component.metrics.exposition import render
from kvstack.component.metrics.labelled import (
    LabelledCounter,
    LabelledGauge,
    LabelledHistogram,
    by_labels,
)


def test_a_counter_adds_up_by_its_labels() -> None:
    queries = LabelledCounter("queries_total", "Queries.", "proto", "type")
    assert render([queries.samples()]) == b""
    queries.add("udp", "A")
    queries.add("tcp", "A", by=2)
    queries.add("udp", "A", by=0.5)
    assert render([queries.samples()]).decode() == (
        "# HELP queries_total Queries.\n"
        "# TYPE queries_total counter\n"
        'queries_total{proto="tcp",type="A"} 2\n'
        'queries_total{proto="udp",type="A"} 1.5\n'
    )


def test_a_gauge_has_the_last_value_and_labels_are_escaped() -> None:
    moments = LabelledGauge("moment_seconds", "", "status")
    moments.set(1, 'a "b"\\\n')
    moments.set(2.25, 'a "b"\\\n')
    shown = render([moments.samples()]).decode()
    assert 'moment_seconds{status="a \\"b\\"\\\\\\n"} 2.25\n' in shown


def test_a_histogram_is_copied_when_it_is_read_and_can_be_counted() -> None:
    times = LabelledHistogram("took_seconds", "Time.", (0.1, 1.0), "result")
    times.add(0.5, "good")
    times.add(0.0, "good", times=3)
    samples, counted = times.samples(), times.counted("tries_total", "Tries.")
    times.add(7, "good")
    assert render([samples, counted]).decode() == (
        "# HELP took_seconds Time.\n"
        "# TYPE took_seconds histogram\n"
        'took_seconds_bucket{result="good",le="0.1"} 3\n'
        'took_seconds_bucket{result="good",le="1"} 4\n'
        'took_seconds_bucket{result="good",le="+Inf"} 4\n'
        'took_seconds_sum{result="good"} 0.5\n'
        'took_seconds_count{result="good"} 4\n'
        "# HELP tries_total Tries.\n"
        "# TYPE tries_total counter\n"
        'tries_total{result="good"} 4\n'
    )


def test_labels_that_would_be_shown_out_of_order_are_refused() -> None:
    with pytest.raises(ValueError, match=r"queries_total: labels \('type', 'proto'\) must be"):
        LabelledCounter("queries_total", "", "type", "proto")


def test_a_series_needs_a_value_for_each_label() -> None:
    with pytest.raises(ValueError, match="argument 2 is shorter"):
        by_labels(("proto", "type"), {("udp",): 1})
