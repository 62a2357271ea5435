"""Errands of the node: asked for in one turn, answered in some later one, each to who asked.

    desk.ask(kind, args, then) ─► outbox.errands ─► the shell ─► inbox.errands ─► then(result, out)

An errand that is never answered holds one place for good, so whoever asks for many must mind
`ERRANDS_MAX`; beyond it an errand is answered at once, in the next turn, with an error.
"""

from collections.abc import Callable, Sequence
from typing import Final

from kvstore.batch import Errand, ErrandKind, ErrandResult, Outbox

ERRANDS_MAX: Final = 4096  # on their way at once

Then = Callable[[ErrandResult, Outbox], None]


class ErrandDesk:
    """Who waits for which errand."""

    def __init__(self) -> None:
        self._next_id = 1
        self._asked: list[Errand] = []
        self._waiting: dict[int, Then] = {}
        self._refused: list[tuple[Then, ErrandResult]] = []

    def ask(self, kind: ErrandKind, args: tuple[bytes, ...], then: Then) -> None:
        """Send the shell on an errand; then is called with its end, in a later turn."""
        errand_id, self._next_id = self._next_id, self._next_id + 1
        if len(self._waiting) >= ERRANDS_MAX:
            text = f"{ERRANDS_MAX} errands are on their way already"
            self._refused.append((then, ErrandResult(errand_id, text, b"")))
            return
        self._waiting[errand_id] = then
        self._asked.append(Errand(errand_id, kind, args))

    def deliver(self, results: Sequence[ErrandResult], out: Outbox) -> None:
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
            out.errands += self._asked
            self._asked = []
