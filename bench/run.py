"""What a scenario is given: where to work, how much, whom to tell, where figures go.

for round_number in run.rounds():        A B A B: who begins changes every round
    for name in run.order(round_number):
        with run.step(f"{name}: restart"): ...
        run.figures.add(RESTART, name, seconds)
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from rich.progress import Progress, TaskID

from bench.reporting.figures import CONTENDERS, Figures

_MOMENT_S: Final = 0.3


@dataclass(slots=True)
class Run:
    """One run of one scenario."""

    directory: Path  # empty, on the disk to measure; removed after
    round_count: int
    is_quick: bool  # a smoke test: every path, no meaning
    progress: Progress
    task: TaskID
    figures: Figures = field(default_factory=Figures)
    notes: list[str] = field(default_factory=list)
    skipped: str = ""  # why nothing was measured
    sizes: dict[str, int] = field(default_factory=dict)  # asked for by name
    programs: dict[str, str] = field(default_factory=dict)  # of others, to compare with

    def size(self, full: int, quick: int, name: str = "") -> int:
        """Return how many: what was asked for by that name, else full, or quick in a smoke test."""
        return self.sizes.get(name, quick if self.is_quick else full)

    def seconds(self, full: float) -> float:
        """Return how long to load: full, or a moment in a smoke test."""
        return _MOMENT_S if self.is_quick else full

    def rounds(self) -> Iterator[int]:
        """Yield the numbers of the rounds."""
        yield from range(self.round_count)

    def order(self, round_number: int) -> tuple[str, ...]:
        """Return the contenders in the order of a round."""
        return CONTENDERS if round_number % 2 == 0 else CONTENDERS[::-1]

    def note(self, text: str) -> None:
        """Add a sentence that the reader of the results needs, once."""
        if text not in self.notes:
            self.notes.append(text)

    def skip(self, why: str) -> None:
        """Say that this scenario cannot be played here; the run tells it loudly and goes on."""
        self.skipped = why

    @contextmanager
    def step(self, text: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
        """Show what is being done; the yielded call tells that so many of total are done."""
        self.progress.remove_task(self.task)  # a task cannot go back to an unknown total
        self.task = self.progress.add_task(text, total=total)

        def tell(count: int) -> None:
            self.progress.update(self.task, advance=count)

        yield tell


@dataclass(frozen=True, slots=True)
class Scenario:
    """A workload with a name, a line for the report and its usual number of rounds."""

    name: str
    title: str
    summary: str
    rounds: int
    play: Callable[[Run], None]
    sizes: tuple[str, ...] = ()  # names of what --size may set
    columns: tuple[str, str] = CONTENDERS  # what the contenders are called on the page
    is_apart: bool = False  # only played by its name, and its results have a directory of their own
