"""Work that the node off-loads to other threads: requested in one turn, answered in a later one.

    offloaded.ask(kind, args, callback) ─► outbox.tasks ─► a source of the driver
                                 callback(result, out) ◄── inbox.task_results ◄──┘

At most TASKS_MAX tasks are under way; one beyond that fails in the next turn. A task that is never
answered counts as long as the process runs.
"""

from collections.abc import Callable, Sequence
from typing import Final

from kvstore.batch import OffloadedTask, Outbox, TaskKind, TaskResult

TASKS_MAX: Final = 4096  # under way at once

TaskCallback = Callable[[TaskResult, Outbox], None]


class OffloadedTasks:
    """The tasks under way, and their callbacks."""

    def __init__(self) -> None:
        self._next_id = 1
        self._new: list[OffloadedTask] = []
        self._callbacks: dict[int, TaskCallback] = {}
        self._refused: list[tuple[TaskCallback, TaskResult]] = []

    def ask(self, kind: TaskKind, args: tuple[bytes, ...], callback: TaskCallback) -> None:
        """Request a task; callback is called with its result, in a later turn."""
        task_id, self._next_id = self._next_id, self._next_id + 1
        if len(self._callbacks) >= TASKS_MAX:
            text = f"too many tasks are under way, limit {TASKS_MAX}"
            self._refused.append((callback, TaskResult(task_id, text, b"")))
            return
        self._callbacks[task_id] = callback
        self._new.append(OffloadedTask(task_id, kind, args))

    @property
    def has_refused(self) -> bool:
        """Whether tasks failed without a result."""
        return bool(self._refused)

    def deliver(self, results: Sequence[TaskResult], out: Outbox) -> None:
        """Call the callback of each result; one of an unknown task is ignored."""
        refused, self._refused = self._refused, []
        for callback, result in refused:
            callback(result, out)
        for result in results:
            waiting = self._callbacks.pop(result.id, None)
            if waiting is not None:
                waiting(result, out)

    def take(self, out: Outbox) -> None:
        """Put the tasks requested since the last call into the outbox."""
        if self._new:
            out.tasks += self._new
            self._new = []
