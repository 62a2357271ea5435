"""/debug/pprof: those of Go's profiles that a Python process can give, with --enable-pprof.

    profile?seconds=30    every thread's stack, sampled 100 times a second, as a pprof file
    goroutine?debug=2     every thread's stack now, as text (threads instead of goroutines)
    heap, allocs          counters of the collector and the allocator, as text
    cmdline, symbol       as in Go
    trace, block, mutex, threadcreate    not supported: 404 and the reason

A profile counts threads that hold the interpreter lock and those that wait for it. Threads that
wait for sockets or queues are idle and are left out. One profile runs at a time.
"""

import asyncio
import gc
import sys
import threading
import time
import traceback
from collections import Counter
from html import escape
from types import FrameType
from typing import Final

from kvstack.component.units import SECOND_NS
from kvstore.batch import HttpHeaders
from kvstore.http.exchange import PageRequest, Responder, plain_error
from kvstore.server.pages.pprof_format import Frame, Stack, profile

PREFIX: Final = "/debug/pprof/"
SECONDS_MAX: Final = 300
_SECONDS_DEFAULT: Final = 30
_PERIOD_NS: Final = 10_000_000
_DEPTH_MAX: Final = 128

_IDLE: Final = frozenset({"select", "poll", "wait", "accept", "recv", "_worker"})
_TEXT: Final[HttpHeaders] = [
    ("Content-Type", "text/plain; charset=utf-8"),
    ("X-Content-Type-Options", "nosniff"),
]
_UNSUPPORTED: Final = {
    "trace": "execution traces are Go's own",
    "block": "this server has no profile of waiting",
    "mutex": "this server has no profile of locks",
    "threadcreate": "this server has no profile of thread creation",
}
_OFFERED: Final = {
    "allocs": "Counters of the allocator.",
    "cmdline": "The command line invocation of the current program",
    "goroutine": "Stack traces of all current threads",
    "heap": "Counters of the garbage collector and the allocator.",
    "profile": "CPU profile. You can specify the duration in the seconds GET parameter.",
    "symbol": "Resolves no symbols: profiles contain the names of functions.",
}


class Profiles:
    """Serves /debug/pprof/."""

    def __init__(self) -> None:
        self._is_profiling = False

    async def serve(self, request: PageRequest, respond: Responder) -> None:
        """Answer one request."""
        name = request.path.removeprefix(PREFIX)
        if name == "":
            await respond.whole(200, [("Content-Type", "text/html; charset=utf-8")], _index())
        elif name == "cmdline":
            await respond.whole(200, _TEXT, "\0".join(sys.argv).encode(errors="replace"))
        elif name == "symbol":
            await respond.whole(200, _TEXT, b"num_symbols: 1\n")
        elif name == "goroutine":
            await respond.whole(200, _TEXT, _stacks().encode(errors="replace"))
        elif name in {"heap", "allocs"}:
            if name == "heap" and request.query.get("gc", ["0"])[0] not in {"", "0"}:
                gc.collect()
            await respond.whole(200, _TEXT, _heap().encode())
        elif name == "profile":
            await self._profile(request, respond)
        elif name in _UNSUPPORTED:
            await plain_error(respond, 404, f"Unknown profile: {_UNSUPPORTED[name]}")
        else:
            await plain_error(respond, 404, "Unknown profile", [("X-Go-Pprof", "1")])

    async def _profile(self, request: PageRequest, respond: Responder) -> None:
        text = request.query.get("seconds", [""])[0]
        seconds = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
        seconds = seconds or _SECONDS_DEFAULT
        if seconds > SECONDS_MAX:
            await plain_error(respond, 400, f"profile of {seconds} s: the limit is {SECONDS_MAX} s")
            return
        if self._is_profiling:
            await plain_error(
                respond,
                500,
                "Could not enable CPU profiling: cpu profiling already in use",
                [("X-Go-Pprof", "1")],
            )
            return
        self._is_profiling = True
        stopped = threading.Event()
        try:
            body = await asyncio.to_thread(_sample, seconds, stopped)
        finally:
            stopped.set()
            self._is_profiling = False
        headers = [
            ("Content-Disposition", 'attachment; filename="profile"'),
            ("Content-Type", "application/octet-stream"),
            ("X-Content-Type-Options", "nosniff"),
        ]
        await respond.whole(200, headers, body)


def _sample(seconds: int, stopped: threading.Event) -> bytes:
    """Sample for some seconds, or until stopped is set; return the profile."""
    own = threading.get_ident()
    samples: Counter[Stack] = Counter()
    unix_ns, start_ns = time.time_ns(), time.monotonic_ns()
    end_ns = start_ns + seconds * SECOND_NS
    while time.monotonic_ns() < end_ns and not stopped.wait(_PERIOD_NS / SECOND_NS):
        for thread_id, frame in sys._current_frames().items():  # noqa: SLF001 — the only way
            if thread_id != own and frame.f_code.co_name not in _IDLE:
                samples[_stack(frame)] += 1
    return profile(
        samples,
        unix_ns=unix_ns,
        duration_ns=time.monotonic_ns() - start_ns,
        period_ns=_PERIOD_NS,
    )


def _stack(frame: FrameType | None) -> Stack:
    frames: list[Frame] = []
    while frame is not None and len(frames) < _DEPTH_MAX:
        code = frame.f_code
        frames.append((code.co_qualname, code.co_filename, frame.f_lineno))
        frame = frame.f_back
    return tuple(reversed(frames))


def _stacks() -> str:
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts = []
    for thread_id, frame in sys._current_frames().items():  # noqa: SLF001 — the only way
        lines = "".join(traceback.format_stack(frame))
        parts.append(f"thread {thread_id} [{names.get(thread_id, 'not of Python')}]:\n{lines}")
    return "\n".join(parts)


def _heap() -> str:
    lines = [f"allocated blocks: {sys.getallocatedblocks()}", f"frozen: {gc.get_freeze_count()}"]
    counts = gc.get_count()
    for generation, stats in enumerate(gc.get_stats()):
        shown = " ".join([f"{key}={value}" for key, value in stats.items()])
        lines.append(f"generation {generation}: objects={counts[generation]} {shown}")
    return "\n".join(lines) + "\n"


def _index() -> bytes:
    rows = "".join(
        [
            f"<tr><td><a href='{name}?debug=1'>{name}</a></td><td>{escape(text)}</td></tr>\n"
            for name, text in _OFFERED.items()
        ]
    )
    page = (
        f"<html>\n<head>\n<title>{PREFIX}</title>\n</head>\n<body>\n{PREFIX}\n<br>\n"
        f"Types of profiles available:\n<table>\n{rows}</table>\n</body>\n</html>\n"
    )
    return page.encode()
