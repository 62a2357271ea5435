"""The keys a proxy owns, held against a cluster that minds leasing keys and answers when it likes.

The world below is the cluster: it carries out what was sent in any order and answers later still.
Another owner takes keys by its own rules. What is readable must always be what the cluster holds.
"""

import random
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any

import pytest

from kvstore.proxy.key_ranges import contains, overlap
from kvstore.proxy.leasing.owned_keys import (
    PAUSE_S,
    Acquisition,
    OwnedKey,
    OwnedKeys,
)
from kvstore.wire.gen import kv_pb2

KEYS = [b"a", b"b", b"c"]
SPANS = [(b"a", b""), (b"b", b""), (b"a", b"c"), (b"b", b"\0")]


def row(key: bytes, value: bytes, lease: int = 0) -> kv_pb2.KeyValue:
    return kv_pb2.KeyValue(key=key, value=value, lease=lease)


class Harness:
    """Owned keys with a clock by hand."""

    def __init__(self, **limits: int) -> None:
        self.time_s = 100.0
        self.given_up: list[OwnedKey] = []
        self.keys = OwnedKeys(lambda: self.time_s, self.given_up.append, **limits)

    def own(self, key: bytes, revision: int, value: bytes = b"v") -> OwnedKey | None:
        attempt = self.keys.begin_acquiring(key)
        self.keys.acquired(attempt, revision, row(key, value))
        self.keys.end_acquiring(attempt)
        return self.keys.get(key)


def test_a_key_that_is_being_written_is_not_readable() -> None:
    its = Harness()
    its.own(b"a", 5)
    with its.keys.writing([(b"a", b"")]) as first, its.keys.writing([(b"a", b"")]) as second:
        assert its.keys.readable(b"a") is None
        second.committed(8, [row(b"a", b"second")], [])
        first.committed(7, [row(b"a", b"first")], [])
    found = its.keys.readable(b"a")
    assert found is not None
    assert found.row is not None
    assert (found.row.value, found.revision) == (b"second", 8)


def test_a_write_that_failed_may_yet_be_carried_out_so_the_key_is_given_up() -> None:
    its = Harness()
    entry = its.own(b"a", 5)
    with suppress(ZeroDivisionError), its.keys.writing([(b"a", b"")]):
        _ = 1 / 0
    assert its.keys.get(b"a") is None
    assert its.given_up == [entry]
    assert not its.keys.may_acquire(b"a")
    its.time_s += PAUSE_S
    assert its.keys.may_acquire(b"a")


def test_a_key_asked_for_while_it_is_being_acquired_is_given_back() -> None:
    its = Harness()
    attempt = its.keys.begin_acquiring(b"a")
    assert not its.keys.may_acquire(b"a")
    its.keys.lose(b"a", created=5)
    its.keys.acquired(attempt, 5, None)
    its.keys.end_acquiring(attempt)
    assert its.keys.get(b"a") is None
    assert [(each.key, each.created) for each in its.given_up] == [(b"a", 5)]


def test_what_has_a_lease_is_given_up() -> None:
    its = Harness()
    its.own(b"a", 5)
    with its.keys.writing([(b"a", b"")]) as writing:
        writing.committed(6, [row(b"a", b"v", lease=7)], [])
    assert its.keys.get(b"a") is None
    assert len(its.given_up) == 1


def test_a_late_event_of_an_older_leasing_key_changes_nothing() -> None:
    its = Harness()
    its.own(b"a", 5)
    its.keys.lose(b"a", before=5)
    its.keys.lose(b"a", created=4)
    assert its.keys.readable(b"a") is not None
    its.keys.lose(b"a", before=6)
    assert its.keys.readable(b"a") is None
    assert its.given_up == []


def test_the_least_recently_read_go_first() -> None:
    its = Harness(keys_max=2, bytes_max=100)
    its.own(b"a", 1)
    its.own(b"b", 2)
    assert its.keys.readable(b"a") is not None
    its.own(b"c", 3)
    assert [each.key for each in its.given_up] == [b"b"]
    with its.keys.writing([(b"c", b"")]) as writing:
        writing.committed(4, [row(b"c", b"v" * 99)], [])
    assert [each.key for each in its.given_up] == [b"b", b"a"]
    assert len(its.keys) == 1


def test_spans() -> None:
    for span in SPANS:
        for other in [each for each in SPANS if each[1]]:
            if span[1]:
                shared = any(contains(span, key) and contains(other, key) for key in KEYS)
                assert overlap(span, other) == shared, (span, other)


class World:
    """A cluster of one, another owner, and all that may be under way."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.revision = 1
        self.held: dict[bytes, kv_pb2.KeyValue | None] = dict.fromkeys(KEYS)
        self.leasing: dict[bytes, tuple[int, bool]] = {}  # key → create revision, is it ours
        self.unsent: list[Callable[[], None]] = []  # by us, not yet carried out
        self.unanswered: list[Callable[[], None]] = []
        self.events: list[Callable[[], None]] = []  # in their order
        self.time_s = 0.0
        self.readable_count = 0
        self.keys = OwnedKeys(lambda: self.time_s, self._on_loss, keys_max=2)

    def step(self) -> None:
        steps: list[Callable[[], None]] = [
            self.acquire, self.acquire, self.write, self.delete_range, self.other_writes,
            self.other_acquires_or_leaves, self.ask, self.wait, *[self.tell_one] * 3,
            *[partial(self.one_of, self.unsent)] * 5, *[partial(self.one_of, self.unanswered)] * 4,
        ]  # fmt: skip
        self.random.choice(steps)()
        for key in KEYS:
            found = self.keys.readable(key)
            if found is not None:
                self.readable_count += 1
                assert found.row == self.held[key], key
                assert self.leasing.get(key) == (found.created, True), key

    def one_of(self, waiting: list[Callable[[], None]]) -> None:
        if waiting:
            waiting.pop(self.random.randrange(len(waiting)))()

    def tell_one(self) -> None:
        if self.events:
            self.events.pop(0)()

    def wait(self) -> None:
        self.time_s += PAUSE_S

    def next_revision(self) -> int:
        self.revision += 1
        return self.revision

    # We.

    def acquire(self) -> None:
        key = self.random.choice(KEYS)
        if self.keys.may_acquire(key):
            attempt = self.keys.begin_acquiring(key)
            self.unsent.append(partial(self._carry_out_acquisition, attempt))

    def _carry_out_acquisition(self, attempt: Acquisition) -> None:
        key, found = attempt.key, self.held[attempt.key]
        is_bound = found is not None and found.lease
        if key in self.leasing or is_bound:
            self.unanswered.append(lambda: self.keys.end_acquiring(attempt))
            return
        created = self.next_revision()
        self.leasing[key] = (created, True)

        def answer() -> None:
            self.keys.acquired(attempt, created, found)
            self.keys.end_acquiring(attempt)

        self.unanswered.append(answer)

    def _on_loss(self, entry: OwnedKey) -> None:
        self.unsent.append(partial(self._delete_leasing, entry.key, entry.created))

    def _delete_leasing(self, key: bytes, created: int) -> None:
        if self.leasing.get(key) == (created, True):
            del self.leasing[key]
            self.events.append(partial(self.keys.lose, key, before=self.next_revision()))

    def write(self) -> None:
        """Put or delete one key; the call may fail and yet be carried out later."""
        key, value = self.random.choice(KEYS), self.random.choice([b"1", b"2", None])
        found = None if value is None else row(key, value, self.random.randrange(2))
        write = Call(self.keys, [(key, b"")])
        singles = write.writing.singles
        created = singles[0].created if singles else 0

        def carry_out() -> None:
            if self.leasing.get(key, (0, True))[0] != created:
                self.unanswered.append(lambda: write.end(write.writing.refused))
                return
            self.held[key] = found
            revision, rows = self.next_revision(), [found] * len(singles)
            self.unanswered.append(lambda: write.end(write.writing.committed, revision, rows, []))

        self.unsent.append(carry_out)
        if self.random.random() < 0.2:
            self.unanswered.append(write.end)

    def delete_range(self) -> None:
        """Delete a range after the other owner's keys in it are gone."""
        span = self.random.choice([each for each in SPANS if each[1]])
        inside = [(key, its) for key, its in self.leasing.items() if contains(span, key)]
        for key, its in inside:
            if not its[1]:
                del self.leasing[key]
        newest = max((its[0] for _, its in inside), default=0)
        write = Call(self.keys, [span])

        def carry_out() -> None:
            leasing = [its[0] for key, its in self.leasing.items() if contains(span, key)]
            if any(created > newest for created in leasing):
                self.unanswered.append(lambda: write.end(write.writing.refused))
                return
            self.held |= {key: None for key in KEYS if contains(span, key)}
            revision = self.next_revision()
            self.unanswered.append(lambda: write.end(write.writing.committed, revision, [], [span]))

        self.unsent.append(carry_out)

    # Everybody else.

    def ask(self) -> None:
        """Put REVOKE on a leasing key of ours; the watch tells us, and we delete it."""
        key = self.random.choice(KEYS)
        created, is_ours = self.leasing.get(key, (0, False))
        if not is_ours:
            return
        self.next_revision()

        def lose() -> None:
            self.keys.lose(key, created=created)
            self.unsent.append(partial(self._delete_leasing, key, created))

        self.events.append(lose)

    def other_acquires_or_leaves(self) -> None:
        key = self.random.choice(KEYS)
        its = self.leasing.get(key)
        if its is None:
            self.leasing[key] = (self.next_revision(), False)
        elif not its[1]:
            del self.leasing[key]

    def other_writes(self) -> None:
        key = self.random.choice(KEYS)
        if not self.leasing.get(key, (0, False))[1]:
            self.next_revision()
            self.held[key] = self.random.choice([None, row(key, b"3"), row(key, b"4")])


class Call:
    """A write of ours from its beginning to its end, which comes once."""

    def __init__(self, keys: OwnedKeys, spans: list[tuple[bytes, bytes]]) -> None:
        self._context = keys.writing(spans)
        self.writing = self._context.__enter__()
        self._is_over = False

    def end(self, settle: Callable[..., None] | None = None, *arguments: Any) -> None:
        """Take an answer; none is a failure of which nothing is known."""
        if not self._is_over:
            self._is_over = True
            if settle is not None:
                settle(*arguments)
            self._context.__exit__(None, None, None)


@pytest.mark.parametrize("first_seed", range(0, 400, 100))
def test_what_is_readable_is_what_the_cluster_holds(first_seed: int) -> None:
    readable_count = 0
    for seed in range(first_seed, first_seed + 100):
        world = World(seed)
        for _ in range(150):
            world.step()
        readable_count += world.readable_count
    assert readable_count > 1000
