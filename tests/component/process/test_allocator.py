"""Freed memory stays with the process, as page faults tell; what an operator set is left alone."""

import os
import subprocess
import sys

import pytest

from kvstack.component.process.allocator import RETURNED_BYTES, FreedMemory, keep_freed_memory

TURNS = 50
BLOCK_BYTES = 2 << 20

# Each turn takes and frees a block; prints the page faults of all turns but the first.
PROGRAM = f"""
import resource, sys
from kvstack.component.process.allocator import keep_freed_memory

kept = keep_freed_memory()
for turn in range({TURNS}):
    block = [bytes({BLOCK_BYTES}) for _ in range(3)]
    for each in block:
        memoryview(each)[::4096].tobytes()
    del block, each
    if turn == 0:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
print(int(kept), resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(environment: dict[str, str]) -> tuple[bool, int]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={"PATH": os.environ["PATH"], **environment},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    kept, count = done.stdout.split()
    return kept == "1", int(count)


def test_turns_of_one_size_fault_no_pages_in() -> None:
    kept, count = faults({})
    if not kept:
        pytest.skip("this C library has no mallopt: freed memory is its own affair")
    block_pages = BLOCK_BYTES // os.sysconf("SC_PAGESIZE")
    assert count < TURNS * block_pages // 10


@pytest.mark.parametrize("name", ["MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES"])
def test_the_environment_takes_precedence(name: str) -> None:
    assert not keep_freed_memory({name: "1"})


def test_memory_is_given_back_once_enough_was_freed(monkeypatch: pytest.MonkeyPatch) -> None:
    freed = FreedMemory()
    trimmed: list[int] = []
    monkeypatch.setattr(freed, "_trim", trimmed.append)
    freed.add(RETURNED_BYTES - 1)
    assert trimmed == []
    freed.add(1)
    freed.add(1)
    assert trimmed == [0]
    freed.add(3 * RETURNED_BYTES)
    assert trimmed == [0, 0]


def test_another_c_library_keeps_its_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    freed = FreedMemory()
    monkeypatch.setattr(freed, "_trim", None)
    freed.add(2 * RETURNED_BYTES)
