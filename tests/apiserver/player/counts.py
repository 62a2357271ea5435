"""How much of the recordings went as recorded: counts, and the table of them in the tests' README.

The table stands between two marks and is written anew with the counts of what was played last; rows
of what was not played stay.
"""

import re
from pathlib import Path
from typing import NamedTuple

from typing_extensions import override

README = Path(__file__).parents[1] / "README.md"
BEGIN = "<!-- written by the players: begin -->"
END = "<!-- written by the players: end -->"
HEAD = (
    "| recordings | scenarios | the same | steps | the same | tolerated | not played |",
    "|---|---|---|---|---|---|---|",
)
_ROW = re.compile(r"\| ([^|]+) \| \d")


class Counts(NamedTuple):
    """The counts of one file of recordings."""

    name: str
    scenarios: int
    same_scenarios: int
    steps: int
    same_steps: int
    tolerated_steps: int = 0  # of the same: with differences that the table allows
    not_played: int = 0  # scenarios

    @override
    def __str__(self) -> str:
        share = 100 * self.same_steps / self.steps if self.steps else 0
        return (
            f"{self.name}: {self.same_scenarios} of {self.scenarios} scenarios the same, "
            f"{self.same_steps} of {self.steps} steps ({share:.1f} %; {self.tolerated_steps} with "
            f"tolerated differences), {self.not_played} scenarios not played"
        )

    def row(self) -> str:
        """Return the row of the table."""
        share = 100 * self.same_steps / self.steps if self.steps else 0
        return (
            f"| {self.name} | {self.scenarios:,} | {self.same_scenarios:,} | {self.steps:,} | "
            f"{self.same_steps:,} ({share:.1f} %) | {self.tolerated_steps:,} | "
            f"{self.not_played:,} |"
        )


def write(readme: Path, counts: list[Counts]) -> None:
    """Put counts into the table; ValueError if the file has no place for it."""
    before, begin, rest = readme.read_text().partition(BEGIN)
    inside, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{readme} has no place for the counts: {BEGIN} ... {END}")
    rows = {match[1]: line for line in inside.splitlines() if (match := _ROW.match(line))}
    rows |= {each.name: each.row() for each in counts}
    table = "\n".join([*HEAD, *(rows[name] for name in sorted(rows))])
    readme.write_text(f"{before}{BEGIN}\n{table}\n{END}{after}")
