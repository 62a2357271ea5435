"""The common frame of control plane programs: loop, signals, log, collector, idle memory.

    return run(lambda: serve(options, log), log)          the exit code

A second signal ends the process at once. A program calls `settle` once it is loaded.
"""

import asyncio
import gc
import os
import signal
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

from kvstack.component.errors import ComponentError, ConfigError
from kvstack.component.line_log.line_logger import LineLogger, capture_library_logs
from kvstack.component.logger import Logger
from kvstack.component.process.allocator import keep_freed_memory
from kvstack.component.process.collector import keep_collections_short
from kvstack.component.process.idle_memory import give_back_when_idle
from kvstack.component.version import KUBERNETES_VERSION

FAILED: Final = 1
"""The exit code after a failure."""


def version_text() -> str:
    """Return the version in the format of upstream's programs."""
    return f"Kubernetes v{KUBERNETES_VERSION}\n"


def run(body: Callable[[], Coroutine[Any, Any, None]], log: LineLogger) -> int:
    """Run a coroutine as the process's work; return the exit code. ConfigError is not caught."""
    capture_library_logs(log)
    gc.disable()  # loaded objects stay: collecting cycles among them would delay every start
    try:
        asyncio.run(_run(body))
    except ConfigError:
        raise
    except ComponentError as error:
        log.fatal("the server cannot continue", kind=type(error).__name__, error=str(error))
        return FAILED
    finally:
        gc.enable()
        log.close()
    return 0


async def _run(body: Callable[[], Coroutine[Any, Any, None]]) -> None:
    giving_back = asyncio.create_task(give_back_when_idle(), name="idle memory")
    try:
        await body()
    finally:
        giving_back.cancel()


def stop_event() -> asyncio.Event:
    """Return the event that the first SIGTERM or SIGINT sets; the second ends the process."""
    event = asyncio.Event()
    loop = asyncio.get_running_loop()

    def stop() -> None:
        if event.is_set():
            os._exit(FAILED)
        event.set()

    for each in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(each, stop)
    return event


async def is_done_before(end: "asyncio.Future[Any]", work: Awaitable[object]) -> bool:
    """Await something, or cancel it when the process is to stop; return whether it finished.

    Raises the errors of the work. Cancelled work must not wait for anything while it ends: until
    Python 3.11.3 a timeout in a cancelled task ends the task. The caller does the ordered shutdown
    afterwards.
    """
    doing = asyncio.ensure_future(work)
    try:
        await asyncio.wait((doing, end), return_when=asyncio.FIRST_COMPLETED)
    finally:
        doing.cancel()
        await asyncio.wait((doing,))
    if doing.cancelled():
        return False
    doing.result()
    return True


def keep_log_of_loop(log: Logger) -> None:
    """Log uncaught exceptions."""

    def handle(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        log.error(context.get("message", ""), error=repr(context.get("exception")))

    asyncio.get_running_loop().set_exception_handler(handle)


def settle() -> None:
    """Enable the cyclic garbage collector after loading, and freeze the present objects.

    They are not looked at before: almost all of them stay, and what waits for a start would wait
    for a walk over all of them, too. Dead cycles among them go in a quiet period (`idle_memory`).
    """
    keep_freed_memory()
    gc.freeze()
    keep_collections_short()
