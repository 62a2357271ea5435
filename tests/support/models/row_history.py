"""Whether what was read and written of keys could have happened one after another.

The cluster's own history, from a watch, says what every key held at every revision. A read that
began when revision a of its key was known to somebody must return what the key held at a or later;
what it returns is then known to every read that begins after it has ended:

    known before it began ≤ revisions at which the key held what was read ─► known from its end on

A write's revision becomes known when it ends. A read of what no revision holds is found as well.
"""

import time
from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass

from kvstore.wire.gen import kv_pb2
from tests.support.rpc_client import Client

Held = tuple[int, bytes]  # mod revision and value; (0, b""): nothing


@dataclass(frozen=True)
class Seen:
    """One call on one key that was answered."""

    key: bytes
    began_s: float
    ended_s: float
    who: str
    held: Held | None = None  # what a read returned
    wrote: int = 0  # the revision of a write


def held_of(row: kv_pb2.KeyValue | None) -> Held:
    """Return what a read of a key returned."""
    return (0, b"") if row is None else (row.mod_revision, row.value)


def now_s() -> float:
    """Return the time that calls begin and end at."""
    return time.monotonic()


def rows(client: Client, last: int) -> dict[bytes, list[tuple[int, Held]]]:
    """Return for every key what it held from each revision on, up to the last."""
    found: dict[bytes, list[tuple[int, Held]]] = defaultdict(lambda: [(0, (0, b""))])
    for event in client.history(1, last):
        kv = event.kv
        is_deletion = event.type == kv_pb2.Event.DELETE
        found[kv.key].append((kv.mod_revision, (0, b"") if is_deletion else held_of(kv)))
    return found


def trouble(seen: list[Seen], truth: dict[bytes, list[tuple[int, Held]]]) -> list[str]:
    """Return what cannot have happened, in words; nothing if all is well."""
    by_key: dict[bytes, list[Seen]] = defaultdict(list)
    for each in seen:
        by_key[each.key].append(each)
    return [found for key, calls in by_key.items() for found in _of_one(calls, truth[key])]


def _of_one(calls: list[Seen], states: list[tuple[int, Held]]) -> list[str]:
    """Judge the calls of one key, in the order in which they ended."""
    found: list[str] = []
    ends: list[float] = []
    known: list[int] = []  # by the end of each call: the newest revision known then
    for call in sorted(calls, key=lambda each: each.ended_s):
        at = bisect_left(ends, call.began_s)
        least = known[at - 1] if at else 0
        revision = call.wrote if call.held is None else _first(states, call.held, least)
        if revision is None:
            found.append(f"{call} is not of revision {least} or later; the key held {states[-9:]}")
            revision = 0
        ends.append(call.ended_s)
        known.append(max(revision, known[-1] if known else 0))
    return found


def _first(states: list[tuple[int, Held]], what: Held, least: int) -> int | None:
    """Return the first revision, least or later, at which the key held what was read."""
    for at, (begin, state) in enumerate(states):
        after = states[at + 1][0] if at + 1 < len(states) else None
        if state == what and (after is None or after > least):
            return max(begin, least)
    return None
