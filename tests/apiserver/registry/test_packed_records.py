"""Events that nobody has looked at for a while are kept compressed, and are the same objects."""

import orjson
import pytest

from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apiserver.registry.collection import Collection
from kvstack.apiserver.registry.record import PackedRecord, PackedRecords, Record
from kvstack.component.packing import Packing
from tests.apiserver.registry.test_collection import collection

LEASE = 7


def event(number: int) -> bytes:
    """Return an event as it is stored."""
    return orjson.dumps(
        {
            "kind": "Event",
            "apiVersion": "v1",
            "metadata": {"name": f"web.{number}", "namespace": "a", "uid": f"uid-{number}"},
            "involvedObject": {"kind": "Pod", "namespace": "a", "name": f"web-{number}"},
            "reason": "Scheduled",
            "message": f"Successfully assigned a/web-{number} to node-{number % 3}",
            "type": "Normal",
        }
    )


def with_events(count: int, *, lease: int = LEASE) -> tuple[Collection, list[Record]]:
    """Return a collection of events of the revisions from 1 on, and the records in it."""
    events = collection("events")
    assert events.resource == GroupResource("", "events")
    records = [
        events.read(f"a/web.{number}", event(number), number, lease)
        for number in range(1, count + 1)
    ]
    events.apply([(each.revision, each.key, each) for each in records])
    return events, records


def test_a_packed_record_is_the_same_object() -> None:
    events, records = with_events(20)
    assert events.pack(20, 100) == 20
    for record in records:
        packed = events.get(record.key)
        assert isinstance(packed, PackedRecord)
        assert packed.body == record.body
        assert packed.json == record.json
        assert packed.parse() == record.parse()
        assert (packed.labels, packed.fields) == (record.labels, record.fields)
        assert (packed.key, packed.revision) == (record.key, record.revision)
        assert (packed.lease, packed.version_at) == (LEASE, record.version_at)
        assert packed.at_revision(99).body == record.at_revision(99).body
    assert sum(
        len(each.packed.data) for each in events.between() if isinstance(each, PackedRecord)
    ) < (sum(len(each.body) for each in records) / 3)


def test_only_what_is_old_is_packed_and_only_so_much_at_once() -> None:
    events, _ = with_events(20)
    assert events.pack(10, 4) == 4
    assert events.pack(10, 100) == 6
    assert events.pack(10, 100) == 0
    assert [isinstance(events.get(f"a/web.{n}"), PackedRecord) for n in (1, 10, 11)] == [
        True,
        True,
        False,
    ]


def test_what_has_changed_waits_again_and_what_is_gone_is_left_out() -> None:
    events, _ = with_events(3)
    again = events.read("a/web.1", event(1), 4, LEASE)
    events.apply([(4, "a/web.1", again), (5, "a/web.2", None)])
    assert events.pack(3, 100) == 1
    assert events.get("a/web.1") is again
    assert events.get("a/web.2") is None
    assert events.pack(5, 100) == 1
    assert isinstance(events.get("a/web.1"), PackedRecord)


def test_a_packed_event_is_shown_when_it_goes() -> None:
    events, (record,) = with_events(1)
    events.pack(1, 100)
    events.apply([(2, record.key, None)])
    (_, change) = events.window.after(0)
    assert change.gone().parse()["metadata"]["resourceVersion"] == "2"
    assert change.previous is not None
    assert change.previous.body == record.body


def test_what_does_not_expire_stays_as_it_is() -> None:
    events, records = with_events(3, lease=0)
    assert events.pack(3, 100) == 0
    assert list(events.between()) == records


def test_what_is_read_anew_is_packed_anew() -> None:
    events, records = with_events(3)
    events.pack(3, 100)
    events.fill(records, 9)
    assert events.pack(9, 100) == 3


@pytest.mark.parametrize("fields", [(), ("",), ("a",), ("a", ""), ("", ""), ("a\0b", "c"), ("\0",)])
def test_fields_are_the_same_whatever_is_in_them(fields: tuple[str, ...]) -> None:
    record = Record("k", 1, b"", b"x" * 100, -1, {}, fields, lease=LEASE)
    packed = Packing().of(record.body)
    assert packed is not None
    assert PackedRecords([record], [packed]).record("k").fields == fields
