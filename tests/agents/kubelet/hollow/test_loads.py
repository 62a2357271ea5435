"""What hollow pods seem to use."""

import asyncio
from ipaddress import IPv4Network

import pytest

from kvstack.agents.kubelet.hollow import loads
from kvstack.agents.kubelet.hollow.hollow_runtime import HollowRuntime
from kvstack.agents.kubelet.hollow.loads import IDLE, Load, Schedule, load_of
from kvstack.agents.kubelet.runtime.runtime import Sandbox, StartError
from tests.support.clocks import HandClock


def cpu(text: str) -> Schedule:
    return load_of({"hollow/cpu": text}).cpu


def test_a_constant_and_a_schedule() -> None:
    assert load_of({}) == IDLE
    assert cpu("250m").at(1e6) == 0.25
    found = cpu("0s=10m, 30s=800m,1m30s=50m")
    assert [found.at(each) for each in (0, 29.9, 30, 89, 90, 1e9)] == [
        0.01,
        0.01,
        0.8,
        0.8,
        0.05,
        0.05,
    ]
    assert load_of({"hollow/memory": "1m=1Ki,2m=2Ki"}).memory.at(0) == 1024


def test_what_is_used_between_two_times() -> None:
    found = cpu("0s=1,10s=3,20s=0")
    assert found.between(0, 10) == 10
    assert found.between(5, 15) == 20
    assert found.between(15, 100) == 15
    assert found.between(30, 30) == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("much", "hollow/cpu: 'much'"),
        ("-1", "hollow/cpu: '-1': an amount from 0"),
        ("0s=1,0s=2", "'0s=2': times must be from 0s on, and ascend"),
        ("-1s=1,0s=2", "times must be from 0s on"),
        ("soon=1", "'soon=1'"),
        (",".join(f"{each}s=1" for each in range(101)), "has 101 steps, more than 100"),
    ],
)
def test_what_is_wrong_is_named(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        cpu(text)
    assert loads.STEPS_MAX == 100


def runtime_with(containers: int, clock: HandClock) -> HollowRuntime:
    runtime = HollowRuntime(IPv4Network("10.0.0.0/24"), clock, "n")
    runtime.connect_pod("u", is_on_host=False)
    for number in range(containers):
        runtime.begin("u", f"c{number}", 0, "image")
    return runtime


def test_containers_share_what_their_pod_uses() -> None:
    clock = HandClock()
    runtime = runtime_with(2, clock)
    runtime.use_load("u", load_of({"hollow/cpu": "0s=1,10s=3", "hollow/memory": "2Mi"}))
    clock.now += 20
    found = asyncio.run(runtime.usage())
    assert [(each.cpu_ns, each.memory_bytes) for each in found] == [
        (20 * 10**9 + 1, 1 << 20),
        (20 * 10**9 + 1, 1 << 20),
    ]


def test_what_was_used_stays_when_the_load_is_another() -> None:
    clock = HandClock()
    runtime = runtime_with(1, clock)
    runtime.use_load("u", load_of({"hollow/cpu": "2"}))
    clock.now += 10
    runtime.use_load("u", Load(cpu("500m"), IDLE.memory))
    clock.now += 10
    assert [each.cpu_ns for each in runtime.usage_of("u")] == [25 * 10**9 + 1]
    clock.now -= 5  # a clock that goes back takes nothing away
    assert [each.cpu_ns for each in runtime.usage_of("u")] == [25 * 10**9 + 1]


def test_what_has_ended_uses_nothing() -> None:
    clock = HandClock()
    runtime = runtime_with(1, clock)
    runtime.end(runtime.of_pod("u")[0], 0)
    assert not runtime.usage_of("u")
    assert not runtime.usage_of("none")


def test_a_sandbox_with_a_wrong_annotation_is_refused() -> None:
    runtime = HollowRuntime(IPv4Network("10.0.0.0/24"), HandClock(), "n")
    sandbox = Sandbox("u", "p", "d", annotations={"hollow/cpu": "?"})
    with pytest.raises(StartError, match="hollow/cpu"):
        asyncio.run(runtime.make_sandbox(sandbox))
