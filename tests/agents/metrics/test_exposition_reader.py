"""Prometheus' text, as anybody may send it."""

import math

import pytest

from kvstack.agents.metrics import exposition_reader
from kvstack.agents.metrics.exposition_reader import ReadingError, Sample, read


def test_samples_with_labels_values_and_times() -> None:
    text = (
        "# HELP a what it is\n# TYPE a counter\n\n"
        'a{x="1",y="a \\"quoted\\" \\\\ line\\n",} 2.5 1700000000123\n'
        "b 7\n"
        'c{ le = "+Inf" } NaN\n'
    )
    first, second, third = read(text)
    assert first == Sample("a", {"x": "1", "y": 'a "quoted" \\ line\n'}, 2.5, 1700000000123)
    assert second == Sample("b", {}, 7.0, None)
    assert third.labels == {"le": "+Inf"}
    assert math.isnan(third.value)


def test_only_what_is_requested_is_read_whole() -> None:
    assert [each.name for each in read("a 1\nb nonsense\n", frozenset("a"))] == ["a"]


@pytest.mark.parametrize(
    "line",
    ["{}", "1a 2", 'a{x="1"', 'a{x="1"y="2"} 3', "a{x=1} 2", "a one", "a 1 2 3", "a", 'a{x="\\'],
)
def test_what_is_no_sample_is_refused_with_its_line(line: str) -> None:
    with pytest.raises(ReadingError, match="line 2 is not a sample"):
        list(read(f"ok 1\n{line}\n"))


def test_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ReadingError, match="line 1 has 16389 characters, more than 16384"):
        list(read("a" * 16387 + " 1\n"))
    many = ",".join(f'l{number}="x"' for number in range(65))
    with pytest.raises(ReadingError, match="more than 64 labels"):
        list(read(f"a{{{many}}} 1\n"))
    monkeypatch.setattr(exposition_reader, "SAMPLES_MAX", 3)
    with pytest.raises(ReadingError, match="more than 3 samples"):
        list(read("a 1\n" * 4))
