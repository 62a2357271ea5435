"""What is left in memory of objects that came and went: counted, not measured."""

import sys

from kvstack.apiserver.registry.collection import PACKED_AT_ONCE, Collection
from kvstack.apiserver.registry.record import RECORD_BYTES, PackedRecord, Record
from kvstack.apiserver.registry.window import (
    BYTES_MIN,
    CHANGE_BYTES,
    EXPIRING_BYTES_MAX,
    SMALL_BYTES,
    Change,
)
from tests.apiserver.registry.test_collection import collection
from tests.apiserver.registry.test_packed_records import LEASE, event
from tests.support.reachable import reachable

EVENTS = 1_500
OBJECTS_MAX = 1.5
"""An event: its key, and a share of those that it is held with."""
BYTES_MAX = 500


def held_by(objects: Collection) -> dict[int, object]:
    """Return what a collection holds of its objects."""
    return reachable((objects._records, objects._keys, objects._expiring, objects.window))


def add_events(events: Collection, first: int, end: int) -> None:
    """Let events come one after the other, as a scheduler writes them."""
    for number in range(first, end):
        key = f"a/web.{number}"
        events.apply([(number, key, events.read(key, event(number), number, LEASE))])


def test_an_event_that_nobody_reads_is_little_more_than_its_key() -> None:
    events = collection("events")
    add_events(events, 1, EVENTS)
    before = held_by(events)
    add_events(events, EVENTS, 2 * EVENTS)
    after = held_by(events)
    grown_bytes = sum(map(sys.getsizeof, after.values())) - sum(map(sys.getsizeof, before.values()))
    assert (len(after) - len(before)) / EVENTS < OBJECTS_MAX
    assert grown_bytes / EVENTS < BYTES_MAX


def test_few_events_are_uncompressed_however_fast_they_come() -> None:
    events = collection("events")
    add_events(events, 1, EVENTS)
    records = [each for each in events.between() if not isinstance(each, PackedRecord)]
    in_window = EXPIRING_BYTES_MAX // (CHANGE_BYTES + RECORD_BYTES + len(records[0].body) - 8)
    assert len(events.window) <= len(records) <= in_window + 2 * PACKED_AT_ONCE
    held = [each for each in held_by(events).values() if type(each) is Record]
    assert len(held) == len(records)


def test_events_that_change_again_and_again_leave_no_old_states_behind() -> None:
    events = collection("events")
    add_events(events, 1, 400)
    for number in range(400, 4_000):
        key = f"a/web.{number % 200 + 1}"
        events.apply([(number, key, events.read(key, event(number), number, LEASE))])
    after = held_by(events)
    assert sum(map(sys.getsizeof, after.values())) < 400 * BYTES_MAX + 2 * EXPIRING_BYTES_MAX
    assert len(events) == 399
    for number in range(1, 400):
        found = events.get(f"a/web.{number}")
        assert found is not None
        assert found.parse()["metadata"]["resourceVersion"] == str(found.revision)
        assert found.revision == number if number > 200 else found.revision >= 3_800


def test_events_that_expire_leave_nothing() -> None:
    events = collection("events")
    add_events(events, 1, 1_000)
    gone = [(1_000 + number, f"a/web.{number}", None) for number in range(1, 1_000)]
    events.apply(gone[:500])
    left = [each.revision for each in events.between("a/web.6", "a/web.61")]
    assert left == list(range(600, 610))
    events.apply(gone[500:])
    assert len(events) == 0
    assert events._held_bytes == 0
    events.window.forget(10_000)
    records = [each for each in held_by(events).values() if isinstance(each, Record)]
    assert sum(each.held_bytes for each in records) <= SMALL_BYTES


def test_deleted_pods_leave_only_the_watch_window() -> None:
    pods, body = collection("pods"), b"x" * 3_000
    for number in range(2_000):
        key = f"a/{number}"
        pods.apply([(2 * number + 1, key, Record(key, 2 * number + 1, b"{", body, -1))])
        pods.apply([(2 * number + 2, key, None)])
    held = held_by(pods).values()
    assert sum(isinstance(each, Record) for each in held) < BYTES_MIN // len(body)
    assert sum(isinstance(each, Change) for each in held) < 2 * BYTES_MIN // len(body)
    assert sum(map(sys.getsizeof, held)) < 1.2 * BYTES_MIN
