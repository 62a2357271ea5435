"""What a change of one Service costs in nftables, among 10,000 that have two endpoints each.

`pytest -m long bench/micro/test_nft_changes.py` prints the table: all of it, the kernel's share
included, by the clock and on the processor. It needs root, makes a network namespace and leaves
nothing behind.
"""

import itertools
import resource
import time

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from kvstack.agents.proxy.nftables import program
from kvstack.agents.proxy.nftables.messages import KernelTable
from kvstack.agents.proxy.nftables.program import NOTHING
from tests.agents.proxy.many_services import many
from tests.support.network.routed import routed

SERVICES = 10_000

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(bool(program.problem()), reason=program.problem() or "-"),
]


def cpu_s() -> float:
    """Return what this process and the programs that it ran took of a processor."""
    kinds = resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN
    return sum(used.ru_utime + used.ru_stime for used in map(resource.getrusage, kinds))


def test_endpoints_of_one_service_change(benchmark: BenchmarkFixture) -> None:
    ruleset, change_one = many(SERVICES)
    backs = itertools.cycle((False, True))
    cpu: list[float] = []
    table = KernelTable(4)
    with routed(()) as network:
        whole = ruleset.whole(NOTHING)

        def change() -> None:
            began_s = time.thread_time()
            table.change(change_one(7, back=next(backs)))
            cpu.append(time.thread_time() - began_s)

        def measure() -> None:
            began_s, began_cpu_s = time.perf_counter(), cpu_s()
            program.apply(whole)
            benchmark.extra_info["whole wall s"] = round(time.perf_counter() - began_s, 3)
            benchmark.extra_info["whole cpu s"] = round(cpu_s() - began_cpu_s, 3)
            benchmark.pedantic(change, rounds=100)

        network.run("", measure)
    table.close()
    cpu.sort()
    benchmark.extra_info["cpu ms, median"] = round(1000 * cpu[len(cpu) // 2], 2)
