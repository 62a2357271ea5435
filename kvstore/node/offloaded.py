"""Work that the node hands to other threads: asked for in one turn, answered in a later one.

    offloaded.ask(kind, args, then) ─► outbox.tasks ─► a source of the driver
                                 then(result, out) ◄── inbox.task_results ◄──┘

A task that is never answered holds its place for good, so callers that ask for many must mind
`TASKS_MAX`; a task beyond it is answered with an error in the next turn.
"""

from collections.abc import Callable, Sequence
from typing import Final

from kvstore.batch import OffloadedTask, Outbox, TaskKind, TaskResult

TASKS_MAX: Final = 4096  # on their way at once

Then = Callable[[TaskResult, Outbox], None]


class OffloadedTasks:
    """Who waits for which task."""

    def __init__(self) -> None:
        self._next_id = 1
        self._asked: list[OffloadedTask] = []
        self._waiting: dict[int, Then] = {}
        self._refused: list[tuple[Then, TaskResult]] = []

    def ask(self, kind: TaskKind, args: tuple[bytes, ...], then: Then) -> None:
        """Send the shell on a task; then is called with its end, in a later turn."""
        task_id, self._next_id = self._next_id, self._next_id + 1
        if len(self._waiting) >= TASKS_MAX:
            text = f"{TASKS_MAX} tasks are on their way already"
            self._refused.append((then, TaskResult(task_id, text, b"")))
            return
        self._waiting[task_id] = then
        self._asked.append(OffloadedTask(task_id, kind, args))

    def deliver(self, results: Sequence[TaskResult], out: Outbox) -> None:
        """Hand each result to who asked for it; one that nobody asked for is passed over."""
        refused, self._refused = self._refused, []
        for then, result in refused:
            then(result, out)
        for result in results:
            waiting = self._waiting.pop(result.id, None)
            if waiting is not None:
                waiting(result, out)

    def take(self, out: Outbox) -> None:
        """Put what was asked for since the last time into the outbox."""
        if self._asked:
            out.tasks += self._asked
            self._asked = []
