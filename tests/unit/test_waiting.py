"""Waiting of tests: it has one home, tests/support/waiting.py, and no test sleeps for itself."""

import asyncio
from pathlib import Path
from typing import Final

import pytest

from tests.support.sources.pollers import pollers
from tests.support.waiting import answered, eventually, is_met, stands_still, wait_for

ROOT: Final = Path(__file__).resolve().parents[2]
HOME: Final = "tests/support/waiting.py"
ALLOWED: Final = {
    "tests/agents/stories/story.py _stage": "what is different has to stay away for a while",
    "tests/agents/topology/workload.py _until_done": "each turn is a write",
    "tests/apiserver/player/scenarios.py _ask": "each turn is a recorded request",
    "tests/clusters/sources/test_kube_apiserver.py _create_once_served": "each turn is a write",
    "tests/conformance/http/test_server_stalls.py scenario": "it reads slowly",
    "tests/conformance/http/test_unsent.py scenario": "it reads slowly",
    "tests/conformance/test_etcd_db_etcd.py _stream": "each turn pumps",
    "tests/conformance/transport/test_hostile.py test_a_client_that_reads_slowly_is_kept":
        "it reads slowly",
    "tests/conformance/transport/test_transport.py ping_until_goodbye": "each turn is a ping",
    "tests/crash/test_quick_restart.py restart": "it measures, to a few milliseconds",
    "tests/support/cluster/load.py call": "each turn is a call to the next member",
    "tests/support/compose.py up": "each turn starts what may be started",
    "tests/support/node/harness.py wait": "each turn is one of the node",
    "tests/unit/storage/test_etcd_db_snapshots.py pump_until_end": "each turn pumps",
    "tests/unit/storage/test_etcd_db_snapshots.py pump_until_sent": "each turn pumps",
    "tests/unit/storage/test_etcd_db_snapshots.py test_a_cancelled_writer_is_ended_and_cleared_up":
        "each turn pumps",
}  # fmt: skip
"""Loops that sleep, by file and function, and why."""
VIRTUAL: Final = "tests/sim/"
"""Sleeps of simulated worlds cost no time."""


def test_no_test_waits_by_itself() -> None:
    found = {
        f"{name} {function}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        if not (name := str(path.relative_to(ROOT))).startswith((HOME, VIRTUAL))
        for _, function in pollers(path)
    }
    assert not found - set(ALLOWED), f"wait with {HOME}"
    assert not set(ALLOWED) - found, "they are gone: take them out of the list"


@pytest.mark.parametrize(
    ("loop", "is_one"),
    [
        ("while not done():\n  time.sleep(0.1)", True),
        ("while not done():\n  assert time.monotonic() < end\n  time.sleep(0.1)", True),
        ("while time.monotonic() < end:\n  if done(): return\n  time.sleep(0.1)", True),
        ("while True:\n  if done(): break\n  await asyncio.sleep(STEP_S)", True),
        ("for _ in range(100):\n  if done(): break\n  await asyncio.sleep(0.1)", True),
        ("while not done():\n  await asyncio.sleep(0)", False),
        ("while not self.is_stopped:\n  self.put()\n  time.sleep(0.1)", False),
        ("for _ in range(3):\n  time.sleep(0.1)", False),
        ("while not done():\n  turn()", False),
    ],
)
def test_polling_loops_are_detected(loop: str, *, is_one: bool, tmp_path: Path) -> None:
    body = "\n".join(f"  {line}" for line in loop.splitlines())
    file = tmp_path / "module.py"
    file.write_text(f"async def function():\n{body}\n")
    assert [name for _, name in pollers(file)] == (["function"] if is_one else [])


def test_what_becomes_true_is_returned_and_what_does_not_is_said() -> None:
    answers = iter([0, 0, 7])
    assert wait_for(lambda: next(answers), every_s=0) == 7
    with pytest.raises(AssertionError, match=r"^the log: not within 0 s$"):
        wait_for(lambda: False, lambda: "the log", 0)
    assert is_met(lambda: True, 0)
    assert not is_met(lambda: False, 0)


def test_on_a_loop() -> None:
    seen: list[int] = []

    async def read() -> int:
        seen.append(1)
        return len(seen) > 2 and len(seen)

    async def story() -> None:
        assert await answered(read, every_s=0) == 3
        assert await eventually(lambda: seen) is seen
        with pytest.raises(AssertionError, match="not within 0 s"):
            await eventually(lambda: None, within_s=0)
        values = iter([1, 2, 3, 3, 4])
        assert await stands_still(lambda: next(values), for_s=0) == 3

    asyncio.run(story())
