"""What programs of the control plane have in common: loop, signals, log, collector, idle memory.

    return run(lambda: serve(options, log), log)          the exit code

A second signal ends the process at once. A program calls `settle` once it has loaded what stays.
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
"""The exit code of what did not go as asked."""


def version_text() -> str:
    """Return the version as upstream's programs tell it."""
    return f"Kubernetes v{KUBERNETES_VERSION}\n"


def run(body: Callable[[], Coroutine[Any, Any, None]], log: LineLogger) -> int:
    """Run a coroutine as the process's work; return the exit code. ConfigError passes."""
    capture_library_logs(log)
    gc.disable()  # what loading makes stays: to look for dead cycles among it delays every start
    try:
        asyncio.run(_run(body))
    except ConfigError:
        raise
    except ComponentError as error:
        log.fatal("the server cannot go on", kind=type(error).__name__, error=str(error))
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
    """Return what is set by the first SIGTERM or SIGINT; the second ends the process."""
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
    """Do something, or cancel it as soon as the end comes; return whether it was done.

    Raises what the work raises. What is cancelled must not wait for anything while it ends: until
    Python 3.11.3 a timeout in a cancelled task ends the task. Whatever has to be ended in order is
    ended by the caller, afterwards.
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
    """Send what nobody caught to the log."""

    def handle(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        log.error(context.get("message", ""), error=repr(context.get("exception")))

    asyncio.get_running_loop().set_exception_handler(handle)


def settle() -> None:
    """Turn the collector of cycles on, which loading does without; what there is now stays."""
    keep_freed_memory()
    keep_collections_short()
