"""Tracking of ended pods by finalizers: counted once each, though any step may fail.

    uid into status.uncountedTerminatedPods ─► finalizer removed ─► into the counter

A pod without finalizer is never counted again; a uid in the status is counted when its pod is
without. Of an indexed Job only failures are counted so: its successes are a set of indexes.
"""

from collections.abc import Iterable
from typing import Final

from kvstack.apimachinery.objects.json_object import Object

UNCOUNTED_MAX: Final = 500
_COUNTERS: Final = ("succeeded", "failed")


class Uncounted:
    """The pods that have ended and are not in the counters yet; changes the status it is given."""

    def __init__(self, status: Object) -> None:
        """status: of the Job, the caller's own."""
        self._status = status
        found = status.get("uncountedTerminatedPods") or {}
        self._uids: dict[str, list[str]] = {name: list(found.get(name) or ()) for name in _COUNTERS}
        self._store()

    def __len__(self) -> int:
        """Return how many there are."""
        return sum(map(len, self._uids.values()))

    def of(self, counter: str) -> list[str]:
        """Return the uids that wait for a counter."""
        return self._uids[counter]

    def add(self, counter: str, uid: str) -> None:
        """Add a pod that is to be counted."""
        self._uids[counter].append(uid)
        self._store()

    def count(self, tracked: Iterable[str]) -> bool:
        """Count the pods that have lost their finalizer; return whether there were any.

        tracked: the uids of pods that have theirs.
        """
        staying = set(tracked)
        has_changed = False
        for counter, uids in self._uids.items():
            left = [uid for uid in uids if uid in staying]
            if len(left) != len(uids):
                has_changed = True
                number = self._status.get(counter, 0) + len(uids) - len(left)
                self._status[counter] = number
                self._uids[counter] = left
        self._store()
        return has_changed

    def _store(self) -> None:
        self._status["uncountedTerminatedPods"] = {
            name: list(uids) for name, uids in self._uids.items() if uids
        }
