"""Events become responses: encoded once, split at the right borders."""

from kvstore.watch.fanout import Batch
from kvstore.watch.request import FRAGMENT, NO_DELETE, NO_PUT, PREV_KV
from kvstore.wire.gen.rpc_pb2 import WatchResponse
from tests.support.models.watch_history import MemoryHistory, header_of


def batch_of(
    history: MemoryHistory, *, max_message_bytes: int = 1 << 20, covered: int = 0
) -> Batch:
    return Batch(history.events, history, header_of, max_message_bytes, covered)


def responses(
    batch: Batch, flavor: int, indexes: tuple[int, ...] | None = None
) -> list[WatchResponse]:
    parts, size = batch.parts(
        tuple(range(len(batch.events))) if indexes is None else indexes, flavor
    )
    messages = [header + tail for header, tail in parts]
    assert size >= sum(map(len, messages))
    return [WatchResponse.FromString(message) for message in messages]


def shape(answers: list[WatchResponse]) -> list[tuple[int, bool, list[int]]]:
    return [
        (each.header.revision, each.fragment, [event.kv.mod_revision for event in each.events])
        for each in answers
    ]


def three_revisions() -> MemoryHistory:
    history = MemoryHistory()
    history.write((b"a", b"1" * 50), (b"b", b"2" * 50))
    history.write((b"a", b"3" * 50))
    history.write((b"a", None), (b"b", b"4" * 50))
    return history


def test_all_in_one_response() -> None:
    batch = batch_of(three_revisions())
    assert shape(responses(batch, 0)) == [(4, False, [2, 2, 3, 4, 4])]


def test_the_same_set_of_events_is_made_once() -> None:
    batch = batch_of(three_revisions())
    assert batch.parts((0, 2), 0) is batch.parts((0, 2), 0)
    one, both = batch.parts((0,), 0)[0][0][1], batch.parts((0, 1), 0)[0][0][1]
    assert both.startswith(one)


def test_filters() -> None:
    batch = batch_of(three_revisions())
    assert shape(responses(batch, NO_DELETE)) == [(4, False, [2, 2, 3, 4])]
    assert [event.type for event in responses(batch, NO_PUT)[0].events] == [1]
    assert responses(batch, NO_PUT | NO_DELETE) == []
    assert responses(batch, NO_PUT, (0, 1)) == []


def test_previous_values() -> None:
    (answer,) = responses(batch_of(three_revisions()), PREV_KV)
    assert [event.prev_kv.value for event in answer.events] == [
        b"",
        b"",
        b"1" * 50,
        b"3" * 50,
        b"2" * 50,
    ]
    assert [event.HasField("prev_kv") for event in answer.events] == [
        False,
        False,
        True,
        True,
        True,
    ]


def test_a_previous_value_below_the_compacted_revision_is_left_out() -> None:
    history = three_revisions()
    history.compacted = 3
    (answer,) = responses(batch_of(history), PREV_KV)
    assert [event.HasField("prev_kv") for event in answer.events] == [
        False,
        False,
        False,
        True,
        True,
    ]


def test_splits_between_revisions_and_never_within() -> None:
    small = batch_of(three_revisions(), max_message_bytes=100)
    assert shape(responses(small, 0)) == [(2, False, [2, 2]), (3, False, [3]), (4, False, [4, 4])]
    larger = batch_of(three_revisions(), max_message_bytes=64 + 220)
    assert shape(responses(larger, 0)) == [(3, False, [2, 2, 3]), (4, False, [4, 4])]


def test_the_last_response_covers_what_was_read_the_others_their_last_event() -> None:
    batch = batch_of(three_revisions(), max_message_bytes=100, covered=9)
    assert shape(responses(batch, 0)) == [(2, False, [2, 2]), (3, False, [3]), (9, False, [4, 4])]
    one_event = batch_of(three_revisions(), covered=9)
    assert shape(responses(one_event, 0, (0,))) == [(9, False, [2])]


def test_a_large_revision_is_fragmented_if_requested() -> None:
    history = MemoryHistory()
    history.put(b"z")
    history.write(*((b"k%d" % number, b"x" * 60) for number in range(5)))
    batch = batch_of(history, max_message_bytes=64 + 200)
    assert shape(responses(batch, 0)) == [(2, False, [2]), (3, False, [3] * 5)]
    assert shape(responses(batch, FRAGMENT)) == [
        (2, False, [2]),
        (3, True, [3] * 2),
        (3, True, [3] * 2),
        (3, False, [3]),
    ]


def test_every_fragment_of_the_last_response_has_the_same_revision() -> None:
    history = MemoryHistory()
    history.write(*((b"k%d" % number, b"x" * 60) for number in range(3)))
    batch = batch_of(history, max_message_bytes=100, covered=9)
    assert shape(responses(batch, FRAGMENT)) == [(9, True, [2]), (9, True, [2]), (9, False, [2])]


def test_an_event_too_large_for_any_message_is_sent_all_the_same() -> None:
    history = MemoryHistory()
    history.put(b"k", b"x" * 1000)
    assert shape(responses(batch_of(history, max_message_bytes=100), FRAGMENT)) == [(2, False, [2])]


def test_many_revisions_split_well() -> None:
    history = MemoryHistory()
    for _ in range(500):
        history.put(b"k", b"x" * 100)
    answers = responses(batch_of(history, max_message_bytes=1000), 0)
    assert [each.ByteSize() <= 1000 for each in answers] == [True] * len(answers)
    mains = [event.kv.mod_revision for each in answers for event in each.events]
    assert mains == list(range(2, 502))
