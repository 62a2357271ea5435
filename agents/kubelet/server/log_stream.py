"""Sends a container's log: what exists, and with `follow` what is added."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, Final

from kvstack.agents.kubelet.pods.logs import Reader, Selection, tail
from kvstack.apimachinery.objects.times import TimeError, parse_time

_POLL_S: Final = 0.2
_PIECE: Final = 1 << 20


class QueryError(ValueError):
    """A query that cannot be meant."""


def selection_of(query: Mapping[str, Sequence[str]], now_s: float) -> Selection:
    """Return what a query selects; raises QueryError."""
    seconds, time = _number(query, "sinceSeconds", 1), query.get("sinceTime", ("",))[0]
    if seconds is not None and time:
        raise QueryError("at most one of `sinceTime` or `sinceSeconds` may be specified")
    since_ns = 0 if seconds is None else int((now_s - seconds) * 1e9)
    if time:
        try:
            moment = parse_time(time)
        except TimeError as error:
            raise QueryError(str(error)) from error
        since_ns = moment.seconds * 1_000_000_000 + moment.nanoseconds
    lines = "" if query.get("tail", ("",))[0] == "all" else "tail"
    return Selection(
        _number(query, "tailLines", 0) if "tailLines" in query else _number(query, lines, 0),
        since_ns,
        _number(query, "limitBytes", 1),
        has_timestamps=is_true(query, "timestamps"),
    )


def is_true(query: Mapping[str, Sequence[str]], name: str) -> bool:
    """Whether a parameter of a query is true."""
    return query.get(name, ("",))[0] in ("true", "1")


def _number(query: Mapping[str, Sequence[str]], name: str, least: int) -> int | None:
    text = query.get(name, ("",))[0]
    if not text:
        return None
    if not text.isdecimal() or int(text) < least:
        raise QueryError(f"{name}: {text}")
    return int(text)


async def pieces(
    path: Path, selection: Selection, *, follows: bool, is_running: Callable[[], bool]
) -> AsyncIterator[bytes]:
    """Give a log as a reader sees it; follows: until its container has ended. OSError."""
    reader = Reader(selection)
    file: BinaryIO = await asyncio.to_thread(path.open, "rb")
    try:
        data = await asyncio.to_thread(file.read)
        *entries, rest = data.split(b"\n")
        if shown := reader.read(tail(entries, selection.tail_lines)):
            yield shown
        while follows and not reader.is_full:
            may_grow = is_running()  # asked first: what it wrote last is read below
            data = await asyncio.to_thread(file.read, _PIECE)
            if data:
                *entries, rest = (rest + data).split(b"\n")
                if shown := reader.read(entries):
                    yield shown
                continue
            if fresh := await asyncio.to_thread(_successor, path, file):
                file.close()
                file = fresh
                continue
            if not may_grow:
                return
            await asyncio.sleep(_POLL_S)
    finally:
        file.close()


def _successor(path: Path, file: BinaryIO) -> BinaryIO | None:
    """Return the file that took a log's place, if it was rotated."""
    if path.stat().st_ino == os.fstat(file.fileno()).st_ino:
        return None
    return path.open("rb")
