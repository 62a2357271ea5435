"""Rates of two readings, and what kubelets tell."""

import asyncio
import gc
import time

import pytest

from kvstack.agents.metrics import readings
from kvstack.agents.metrics.exposition_reader import ReadingError
from kvstack.agents.metrics.points import Points, Rate
from kvstack.agents.metrics.readings import (
    ContainerUsage,
    Reading,
    Usage,
    read_page_of_others,
    read_resource_page,
)

NOW_MS = 1_700_000_000_000


def reading(*containers: ContainerUsage, node: tuple[int, int] = (0, 0)) -> Reading:
    return Reading(Usage(node[0], 0, node[1], 1), containers)


def web(
    time_s: float, cpu_s: float, *, started_s: float = 0, memory: int = 9, name: str = "c"
) -> ContainerUsage:
    """Return a reading of a container; times from NOW_MS on."""
    usage = Usage(
        NOW_MS + int(time_s * 1000), NOW_MS + int(started_s * 1000), int(cpu_s * 1e9), memory
    )
    return ContainerUsage("d", "web", name, usage)


def test_a_page_of_a_kubelet() -> None:
    text = (
        f"node_cpu_usage_seconds_total 12.5 {NOW_MS}\n"
        f"node_memory_working_set_bytes 1.5e+09 {NOW_MS}\n"
        f'container_cpu_usage_seconds_total{{container="a",namespace="d",pod="p"}} 2 {NOW_MS}\n'
        f'container_memory_working_set_bytes{{container="a",namespace="d",pod="p"}} 4096 {NOW_MS}\n'
        'container_start_time_seconds{container="a",namespace="d",pod="p"} 1.7e+09\n'
        "resource_scrape_error 0\n"
    )
    found = read_resource_page(text, 5)
    assert found.node == Usage(NOW_MS, 0, 12_500_000_000, 1_500_000_000)
    usage = Usage(NOW_MS, 1_700_000_000_000, 2_000_000_000, 4096)
    assert found.containers == [ContainerUsage("d", "p", "a", usage)]


@pytest.mark.parametrize("value", ["NaN", "-1", "+Inf", "1e30"])
def test_amounts_that_are_none_are_refused(value: str) -> None:
    with pytest.raises(ReadingError, match="which is not a valid amount"):
        read_resource_page(f"node_memory_working_set_bytes {value}\n", 0)


def test_a_node_of_too_many_containers_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readings, "CONTAINERS_MAX", 1)
    lines = [f'container_start_time_seconds{{container="{each}"}} 1\n' for each in "ab"]
    with pytest.raises(ReadingError, match="more than 1 containers"):
        read_resource_page("".join(lines), 0)


CPU = "container_cpu_usage_seconds_total"
PAGE_BYTES = 4 << 20
_LABELS = ",".join(f'l{each}=".."' for each in range(60))
HOSTILE = {
    "samples": "".join(f'{CPU}{{container="c{each}",pod="p"}} 1\n' for each in range(4_999)) * 9,
    "labels": f"{CPU}{{{_LABELS}}} 1.5\n" * 9_000,
    "empty lines": "\n" * 399_999,
    "comments": "# a\n" * 399_999,
    "long lines": f'{CPU}{{a="{"x" * 16_000}"}} 1\n' * 250,
    "escapes": f'{CPU}{{a="{chr(92) * 16_000}"}} 1\n' * 250,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_page_of_others_holds_nobody_up(name: str) -> None:
    """A node may send what it likes, every 15 seconds, to the loop of the API server."""
    text = HOSTILE[name][:PAGE_BYTES].rpartition("\n")[0]
    steps: list[float] = []

    async def read() -> None:
        task = asyncio.get_running_loop().create_task(read_page_of_others(text, 0))
        while not task.done():
            began_s = time.thread_time()  # what others on the machine do does not count
            await asyncio.sleep(0)
            steps.append(time.thread_time() - began_s)
        await task

    gc.collect()
    gc.disable()  # the collector looks at what all other tests have left
    try:
        asyncio.run(read())
    finally:
        gc.enable()
    assert len(steps) > 5
    assert max(steps) < 0.05


def test_lines_have_a_limit() -> None:
    with pytest.raises(ReadingError, match="more than 400000 lines"):
        read_resource_page("\n" * 400_001, 0)


def test_a_rate_takes_two_readings() -> None:
    points = Points(15)
    points.take("n", reading(web(60, 6), node=(NOW_MS, 10**9)))
    assert points.node("n") is None
    assert points.pod("n", "d", "web") is None
    points.take("n", reading(web(75, 9), node=(NOW_MS + 10_000, 3 * 10**9)))
    assert points.node("n") == Rate(NOW_MS + 10_000, 10_000, 200_000_000, 1)
    found = points.pod("n", "d", "web")
    assert found is not None
    assert (found.cpu_nano, found.memory_bytes, found.window_ms) == (200_000_000, 9, 15_000)
    assert points.pod("other", "d", "web") is None


def test_one_reading_is_enough_of_what_has_just_started() -> None:
    points = Points(15)
    points.take("n", reading(web(3, 1)))
    assert points.pod("n", "d", "web") is None
    points.take("n", reading(web(10, 5)))
    found = points.pod("n", "d", "web")
    assert found is not None
    assert (found.window_ms, found.cpu_nano) == (10_000, 500_000_000)


def test_a_container_that_was_started_again_has_no_rate_of_before() -> None:
    points = Points(15)
    points.take("n", reading(web(60, 50)))
    points.take("n", reading(web(75, 1, started_s=74)))
    assert points.pod("n", "d", "web") is None
    points.take("n", reading(web(90, 2, started_s=74)))
    found = points.pod("n", "d", "web")
    assert found is not None
    assert found.window_ms == 15_000


def test_the_same_reading_twice_changes_nothing() -> None:
    points = Points(15)
    for time_s, cpu_s in ((60, 6), (75, 9), (75, 9)):
        points.take("n", reading(web(time_s, cpu_s)))
    found = points.pod("n", "d", "web")
    assert found is not None
    assert (found.window_ms, found.cpu_nano) == (15_000, 200_000_000)


def test_what_used_less_than_before_has_no_rate() -> None:
    points = Points(15)
    points.take("n", reading(web(60, 6)))
    points.take("n", reading(web(75, 5)))
    assert points.pod("n", "d", "web") is None


def test_a_pod_counts_with_all_its_containers_or_not_at_all() -> None:
    points = Points(15)
    points.take("n", reading(web(60, 6), web(60, 6, name="b")))
    points.take("n", reading(web(75, 9), web(74, 20, name="b")))
    found = points.pod("n", "d", "web")
    assert found is not None
    assert [name for name, _ in found.containers] == ["c", "b"]
    assert found.time_ms == NOW_MS + 74_000, "the earliest"
    assert found.cpu_nano == 1_200_000_000
    points.take("n", reading(web(90, 9), web(90, 20, name="b", memory=0)))
    assert points.pod("n", "d", "web") is None


def test_what_is_reported_no_more_is_forgotten() -> None:
    points = Points(15)
    for time_s in (60, 75):
        points.take("n", reading(web(time_s, time_s)))
    assert points.count == 1
    points.take("n", reading())
    assert points.pod("n", "d", "web") is None
    points.keep(())
    assert points.count == 0
