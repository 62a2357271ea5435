"""A bar for work that takes long; only on a terminal, and only for whoever watches standard error.

    with bar("importing", state.size_bytes) as advance:  advance(bytes done since the last call)

Off a terminal the calls cost nothing and nothing is loaded.
"""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from kvstore.mvcc.backend import Row

Advance = Callable[[int], None]
REPORT_BYTES: Final = 1 << 20


@contextmanager
def bar(what: str, total_bytes: int) -> Iterator[Advance]:
    """Show how much of about total_bytes is done."""
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
        task = progress.add_task(what, total=max(total_bytes, 1))
        yield lambda count: progress.advance(task, count)


def tracked(rows: Iterable[Row], advance: Advance) -> Iterator[Row]:
    """Yield rows, telling advance how many bytes went by."""
    if advance is _nothing:
        yield from rows
        return
    passed = 0
    for row in rows:
        passed += len(row[0]) + len(row[1])
        if passed >= REPORT_BYTES:
            advance(passed)
            passed = 0
        yield row
    advance(passed)


def _nothing(count: int) -> None:
    """Take note of nothing."""
