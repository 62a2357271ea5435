"""Offloaded tasks about passwords: hashing, checking and signing in a few threads.

    drain(out)   removes these tasks from the outbox and starts them
    fill(inbox)  adds the results of those that have finished

bcrypt releases the interpreter lock while it works, so there are as many threads as processors. The
queue before them is bounded by the node's limit of tasks. Tasks of other kinds stay in the outbox.
"""

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from kvstore.auth.tokens import TokenKeys
from kvstore.batch import Inbox, OffloadedTask, Outbox, TaskKind, TaskResult
from kvstore.server.auth.passwords import PasswordCheck, hash_password

THREADS_MAX: Final = 8
KINDS: Final = frozenset({TaskKind.CHECK_PASSWORD, TaskKind.HASH_PASSWORD, TaskKind.SIGN_TOKEN})


class PasswordTasks:
    """A source of the driver; its threads are started with the first task."""

    def __init__(self, wake: Callable[[], None], keys: TokenKeys | None) -> None:
        """wake makes the driver run a turn; keys sign tokens, None if tokens are not signed."""
        self._wake = wake
        self._keys = keys
        self._check = PasswordCheck()
        self._lock = threading.Lock()
        self._done: list[TaskResult] = []
        self._pool: ThreadPoolExecutor | None = None

    def drain(self, out: Outbox) -> None:
        """Remove the tasks about passwords from the outbox, and start them."""
        if not out.tasks:
            return
        mine = [each for each in out.tasks if each.kind in KINDS]
        if mine:
            out.tasks = [each for each in out.tasks if each.kind not in KINDS]
            self.start(mine)

    def fill(self, inbox: Inbox) -> None:
        """Add the results of finished tasks."""
        if self._done:
            with self._lock:
                done, self._done = self._done, []
            inbox.task_results += done

    def start(self, tasks: Sequence[OffloadedTask]) -> None:
        """Start tasks of KINDS; the result of each is in some later fill."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(
                min(os.cpu_count() or 1, THREADS_MAX), thread_name_prefix="password"
            )
        for task in tasks:
            self._pool.submit(self._run, task)

    def stop(self) -> None:
        """Finish the running tasks, drop the waiting ones."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def _run(self, task: OffloadedTask) -> None:
        try:
            result = TaskResult(task.id, "", self._work(task))
        except Exception as error:  # noqa: BLE001 - any error is a result: a client waits for it
            result = TaskResult(task.id, str(error) or type(error).__name__, b"")
        with self._lock:
            self._done.append(result)
        self._wake()

    def _work(self, task: OffloadedTask) -> bytes:
        args = task.args
        match task.kind:
            case TaskKind.CHECK_PASSWORD:
                if not self._check.matches(args[0], args[1]):
                    raise ValueError("the password is wrong")
                return b""
            case TaskKind.HASH_PASSWORD:
                return hash_password(args[0], int(args[1]))
            case TaskKind.SIGN_TOKEN:
                if self._keys is None:
                    raise ValueError("no keys are configured to sign with")
                return self._keys.sign(args[0].decode(), int(args[1])).encode()
            case _:
                raise ValueError(f"{task.kind.name} is not a task about passwords")
