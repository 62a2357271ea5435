"""Seeds that found a bug: `seeds.txt`, one a line, with what they found.

# what was wrong
seed steps members      (members: - if the seed draws them)
"""

from pathlib import Path

_FILE = Path(__file__).with_name("seeds.txt")


def regression_seeds(file: Path = _FILE) -> list[tuple[int, int, int | None]]:
    """Return (seed, steps, members) of every line; members None: drawn."""
    lines = [line.split() for line in file.read_text().splitlines()]
    return [
        (int(seed), int(steps), None if members == "-" else int(members))
        for seed, steps, members in (line for line in lines if line and line[0] != "#")
    ]
