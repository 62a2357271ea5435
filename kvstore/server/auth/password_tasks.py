"""Password work off the turn: hashing, checking and signing in a few threads.

    drain(out)   takes the tasks that are done here and starts them
    fill(inbox)  hands over what has been finished since

bcrypt lets go of the interpreter while it works, so as many threads as there are processors are
worth having; the queue before them is bounded by how many tasks the node asks for. Other kinds
of tasks are left for others.
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
        """Take what makes the driver take a turn, and the keys of signed tokens if there are."""
        self._wake = wake
        self._keys = keys
        self._check = PasswordCheck()
        self._lock = threading.Lock()
        self._done: list[TaskResult] = []
        self._pool: ThreadPoolExecutor | None = None

    def drain(self, out: Outbox) -> None:
        """Take the tasks that are done here, and start them."""
        if not out.tasks:
            return
        mine = [each for each in out.tasks if each.kind in KINDS]
        if mine:
            out.tasks = [each for each in out.tasks if each.kind not in KINDS]
            self.start(mine)

    def fill(self, inbox: Inbox) -> None:
        """Hand over what has been finished."""
        if self._done:
            with self._lock:
                done, self._done = self._done, []
            inbox.task_results += done

    def start(self, tasks: Sequence[OffloadedTask]) -> None:
        """Start tasks of the kinds done here; each ends in some later fill."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(
                min(os.cpu_count() or 1, THREADS_MAX), thread_name_prefix="password"
            )
        for task in tasks:
            self._pool.submit(self._run, task)

    def stop(self) -> None:
        """Finish what is being worked on, drop what waits."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def _run(self, task: OffloadedTask) -> None:
        try:
            result = TaskResult(task.id, "", self._work(task))
        except Exception as error:  # whatever it was, somebody waits for an answer
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
                    raise ValueError("there are no keys to sign with")
                return self._keys.sign(args[0].decode(), int(args[1])).encode()
            case _:
                raise ValueError(f"{task.kind.name} is not done here")
