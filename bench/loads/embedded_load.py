"""An embedded member's start and latencies, measured in a process of its own.

    python -m bench.loads.embedded_load --interval 0.005 --seconds 1 --busy --data-dir DIR

One client calls: a get, a put, a get ... With --busy another thread computes without pause, so that
every hand-over between the client's loop and the member's thread waits for the interpreter's lock,
for up to the switch interval. It prints what it found as one line of JSON.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Final, NamedTuple

from bench.reporting.figures import percentile
from kvstore import embed

_KEY: Final = b"embedded"
_VALUE: Final = b"v" * 256
_WARM: Final = 50


class MemberFigures(NamedTuple):
    """What one member came to."""

    start_s: float  # from the call of embed.start until it serves, all modules loaded
    rate: float  # calls a second: as many gets as puts
    get_p50_ms: float
    get_p99_ms: float
    put_p50_ms: float
    put_p99_ms: float


def run(
    data_dir: Path | None, *, interval_s: float, seconds: float, is_busy: bool
) -> MemberFigures:
    """Start a member in a process of its own and call it; RuntimeError with its words."""
    command = [sys.executable, "-m", "bench.loads.embedded_load"]
    command += ["--interval", str(interval_s), "--seconds", str(seconds)]
    if data_dir is not None:
        command += ["--data-dir", str(data_dir)]
    if is_busy:
        command.append("--busy")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"embedded_load: {done.stderr[-2000:]}")
    return MemberFigures(**json.loads(done.stdout))


def _compute(is_over: threading.Event) -> None:
    number = 0
    while not is_over.is_set():
        for _ in range(10_000):
            number = (number * 31 + 7) % 1_000_003


async def _load(member: embed.Member, seconds: float) -> tuple[list[float], list[float]]:
    """Return the milliseconds of each get and of each put."""
    gets: list[float] = []
    puts: list[float] = []
    async with member.store() as store:
        for _ in range(_WARM):
            await store.put(_KEY, _VALUE)
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            begin = time.perf_counter()
            await store.get(_KEY)
            between = time.perf_counter()
            await store.put(_KEY, _VALUE)
            gets.append((between - begin) * 1e3)
            puts.append((time.perf_counter() - between) * 1e3)
    return gets, puts


def main() -> None:
    """Measure once."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--interval", type=float, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--busy", action="store_true")
    options = parser.parse_args()
    sys.setswitchinterval(options.interval)
    embed.start().stop()  # what is loaded at the first start is loaded now
    is_over = threading.Event()
    busy = threading.Thread(target=_compute, args=(is_over,))
    begin = time.perf_counter()
    with embed.start(options.data_dir) as member:
        start_s = time.perf_counter() - begin
        if options.busy:
            busy.start()
        try:
            gets, puts = asyncio.run(_load(member, options.seconds))
        finally:
            is_over.set()
    of_gets, of_puts = ((percentile(each, 0.5), percentile(each, 0.99)) for each in (gets, puts))
    rate = (len(gets) + len(puts)) / (sum(gets) + sum(puts)) * 1e3
    print(json.dumps(MemberFigures(start_s, rate, *of_gets, *of_puts)._asdict()))


if __name__ == "__main__":
    main()
