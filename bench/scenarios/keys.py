"""One million keys of 8 bytes with values of 256: memory, and how fast a member is back."""

from typing import Final

from bench.loads.load import VALUE, keys_of, load
from bench.reporting.figures import Better, Measure
from bench.restarts import measure_restarts, note_memory
from bench.run import Run, Scenario
from bench.servers import pair

_KEYS: Final = 1_000_000
_FILLED: Final = Measure("loading, transactions of 100 puts", "puts/s", Better.HIGHER)


def play(run: Run) -> None:
    """Load both, then restart them in turn."""
    keys = run.size(_KEYS, 5_000)
    with pair(run.directory) as servers:
        for name, server in servers.items():
            seconds = load(run, name, server, keys_of(keys), keys, VALUE)
            run.figures.add(_FILLED, name, keys / seconds)
            note_memory(run, name, server, "after loading")
        measure_restarts(run, servers)
    run.note(
        "Files are in the page cache at each start; a read is linearizable and polled every 2 ms."
    )


SCENARIO: Final = Scenario(
    "keys-1m",
    "1 M keys",
    "8 B keys, 256 B values, spread over the key space",
    5,
    play,
)
