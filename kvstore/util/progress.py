"""A progress bar for long work, shown if standard error is a terminal.

    with bar("importing", state.size_bytes) as advance:  advance(bytes done since the last call)

Without a terminal the calls cost nothing and nothing is loaded.
"""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from kvstore.backend import Row

Advance = Callable[[int], None]
REPORT_BYTES: Final = 1 << 20


@contextmanager
def bar(description: str, total_bytes: int) -> Iterator[Advance]:
    """Show the progress towards about total_bytes."""
    if not sys.stderr.isatty():
        yield _nothing
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(description, total=max(total_bytes, 1))
        yield lambda count: progress.advance(task, count)


def tracked(rows: Iterable[Row], advance: Advance) -> Iterator[Row]:
    """Yield rows, calling advance with their bytes."""
    if advance is _nothing:
        yield from rows
        return
    unreported_bytes = 0
    for row in rows:
        unreported_bytes += len(row[0]) + len(row[1])
        if unreported_bytes >= REPORT_BYTES:
            advance(unreported_bytes)
            unreported_bytes = 0
        yield row
    advance(unreported_bytes)


def _nothing(count: int) -> None:
    """Show nothing."""
