"""Of what a node runs short, and when that counts."""

from kvstack.agents.kubelet.eviction.evictions import Measure, Shortage
from kvstack.agents.kubelet.eviction.pressures import EvictionOptions, Pressures

GIB = 1 << 30
MEMORY = "memory.available"


def memory(available: int) -> dict[str, Measure]:
    return {MEMORY: Measure(available, 8 * GIB)}


def test_what_is_short() -> None:
    pressures = Pressures(EvictionOptions())
    found = pressures.observe(
        {
            "nodefs.inodesFree": Measure(6, 100),
            "nodefs.available": Measure(5, 100),
            MEMORY: Measure(50 << 20, 8 * GIB),
        },
        100.0,
    )
    assert [each.signal for each in found] == [MEMORY, "nodefs.available"]
    assert pressures.conditions(100.0) == ["MemoryPressure", "DiskPressure"]


def test_a_pressure_is_reported_for_a_while() -> None:
    pressures = Pressures(EvictionOptions(pressure_s=30.0))
    assert pressures.observe(memory(0), 100.0)
    assert not pressures.observe(memory(8 * GIB), 110.0)
    assert pressures.conditions(129.0) == ["MemoryPressure"]
    assert pressures.conditions(130.0) == []


def test_a_soft_threshold_counts_after_its_time() -> None:
    options = EvictionOptions(soft={MEMORY: "1Gi"}, soft_grace_s={MEMORY: 60.0})
    pressures = Pressures(options)
    assert not pressures.observe(memory(GIB // 2), 100.0)
    assert pressures.conditions(100.0) == ["MemoryPressure"]
    assert not pressures.observe(memory(GIB // 2), 159.0)
    found = pressures.observe(memory(GIB // 2), 160.0)
    assert found == [Shortage(MEMORY, "1Gi", GIB // 2, is_soft=True)]


def test_a_soft_threshold_that_is_left_begins_anew() -> None:
    options = EvictionOptions(soft={MEMORY: "1Gi"}, soft_grace_s={MEMORY: 60.0})
    pressures = Pressures(options)
    pressures.observe(memory(0), 100.0)
    pressures.observe(memory(2 * GIB), 130.0)
    assert [each.is_soft for each in pressures.observe(memory(0), 161.0)] == [False]


def test_hard_thresholds_come_first() -> None:
    soft = {MEMORY: "1Gi", "nodefs.available": "20%"}
    pressures = Pressures(EvictionOptions(soft=soft, soft_grace_s=dict.fromkeys(soft, 0.0)))
    found = pressures.observe({**memory(0), "nodefs.available": Measure(15, 100)}, 1.0)
    assert [(each.signal, each.is_soft) for each in found] == [
        (MEMORY, False),
        (MEMORY, True),
        ("nodefs.available", True),
    ]


def test_so_much_more_is_reclaimed() -> None:
    hard, reclaim = {"nodefs.available": "10%"}, {"nodefs.available": "5"}
    pressures = Pressures(EvictionOptions(hard=hard, reclaim=reclaim))
    assert not pressures.observe({"nodefs.available": Measure(12, 100)}, 1.0)
    assert pressures.observe({"nodefs.available": Measure(9, 100)}, 2.0)
    assert pressures.observe({"nodefs.available": Measure(12, 100)}, 3.0)
    assert not pressures.observe({"nodefs.available": Measure(15, 100)}, 4.0)
    assert not pressures.observe({"nodefs.available": Measure(12, 100)}, 5.0)
