"""Fan-out of changes to watches: each change is encoded once per group of equal watches.

    collection ──changes──► FanOut ──► Group ──► streams
                              by key, namespace, field        one write for all of a group

A group is the streams with the same selection and the same form. Groups are indexed by what their
selection names, so that a change costs nothing for those that it cannot concern: thousands of
kubelets watch the Pods of their own node.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

from kvstack.apiserver.http.watches.events import ADDED, DELETED, MODIFIED, EventWriter
from kvstack.apiserver.registry.collection import Collection
from kvstack.apiserver.registry.selection import Selection
from kvstack.apiserver.registry.window import Change

ExactField = tuple[int, str]
"""A field of records and its value."""


class Stream(Protocol):
    """One watch."""

    def end(self) -> None:
        """End: the client must start a new watch."""
        ...


SendAll = Callable[[Iterable[Stream], bytes], None]
"""Sends the same bytes to streams."""


def kind_of(selection: Selection, change: Change) -> str:
    """Return the event type of a change for a selection; empty: no event."""
    matches = selection.matches
    now, before = change.record, change.previous
    if now is not None and now.error:
        now = None  # no client can see it
    if before is not None and before.error:
        before = None
    if matches is not None:
        now = now if now is not None and matches(now) else None
        before = before if before is not None and matches(before) else None
    if now is not None:
        return ADDED if before is None else MODIFIED
    return "" if before is None else DELETED


class Group:
    """Streams with the same selection and form."""

    __slots__ = ("_opening", "_pending", "first", "selection", "streams", "writer")

    def __init__(self, selection: Selection, writer: EventWriter) -> None:
        self.selection: Final = selection
        self.writer: Final = writer
        self.streams: dict[Stream, None] = {}
        self.first: set[Stream] = set()
        """Streams without an event yet, where the first event differs: Tables."""
        self._opening = b""
        self._pending: list[bytes] = []

    def add(self, change: Change) -> None:
        """Encode a change, if it concerns this group."""
        kind = kind_of(self.selection, change)
        if not kind:
            return
        if self.first and not self._pending:
            record = change.gone() if kind == DELETED else change.record
            assert record is not None, "only a deleted object has no record"
            self._opening = self.writer.record(kind, record, with_columns=True)
        self._pending.append(self.writer.change(kind, change))

    def flush(self, send_all: SendAll) -> int:
        """Send what was encoded; return the number of events over all streams."""
        pending = self._pending
        if not pending:
            return 0
        count = len(pending) * len(self.streams)
        streams: Iterable[Stream] = self.streams
        if self.first:
            send_all(self.first, self.writer.packed(b"".join([self._opening, *pending[1:]])))
            streams = [each for each in streams if each not in self.first]
            self.first = set()
        if streams:
            data = pending[0] if len(pending) == 1 else b"".join(pending)
            send_all(streams, self.writer.packed(data))
        pending.clear()
        return count


class FanOut:
    """The groups of watches of one collection."""

    def __init__(self, collection: Collection, send_all: SendAll) -> None:
        self._send_all = send_all
        self._groups: dict[object, Group] = {}
        self._by_key: dict[str, list[Group]] = {}
        self._by_prefix: dict[str, list[Group]] = {}
        self._by_field: dict[ExactField, list[Group]] = {}
        self._fields: set[int] = set()
        self.event_count = 0
        """Number of events sent, over all streams."""
        collection.listeners.append(self._changed)
        collection.on_reset.append(self._reset)

    def join(
        self, stream: Stream, selection: Selection, writer: EventWriter, *, is_begun: bool
    ) -> Group:
        """Send a stream all changes from now on; is_begun: whether it has had an event."""
        key = (selection.identity, writer.group_form)
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = Group(selection, writer)
            self._homes(selection)[0].append(group)
        group.streams[stream] = None
        if writer.is_table and not is_begun:
            group.first.add(stream)
        return group

    def leave(self, stream: Stream, group: Group) -> None:
        """Send a stream nothing more."""
        group.streams.pop(stream, None)
        group.first.discard(stream)
        if group.streams:
            return
        key = (group.selection.identity, group.writer.group_form)
        if self._groups.get(key) is group:
            del self._groups[key]
            home, forget = self._homes(group.selection)
            home.remove(group)
            if not home:
                forget()

    @property
    def stream_count(self) -> int:
        """Return the number of streams."""
        return sum(len(each.streams) for each in self._groups.values())

    @property
    def group_count(self) -> int:
        """Return the number of groups."""
        return len(self._groups)

    def _homes(self, selection: Selection) -> tuple[list[Group], Callable[[], object]]:
        """Return the list that holds a selection's groups, and a function that removes it."""
        if selection.key is not None:
            key = selection.key
            return self._by_key.setdefault(key, []), lambda: self._by_key.pop(key)
        exact = selection.exact_field
        if exact is not None:
            self._fields.add(exact[0])
            return self._by_field.setdefault(exact, []), lambda: self._by_field.pop(exact)
        prefix = selection.prefix
        return self._by_prefix.setdefault(prefix, []), lambda: self._by_prefix.pop(prefix)

    def _changed(self, changes: Sequence[Change]) -> None:
        """Send changes to the groups that they concern."""
        if not self._groups:
            return
        touched: dict[Group, None] = {}
        for change in changes:
            for group in self._candidates(change):
                group.add(change)
                touched[group] = None
        for group in touched:
            self.event_count += group.flush(self._send_all)
        for change in changes:
            change.forget_forms()  # otherwise the window would hold every object twice

    def _candidates(self, change: Change) -> list[Group]:
        """Return the groups whose range contains a change."""
        key = change.key
        groups: list[Group] = []
        if self._by_prefix:
            groups += self._by_prefix.get("", ())
            namespace, slash, _ = key.partition("/")
            if slash:
                groups += self._by_prefix.get(f"{namespace}/", ())
        if self._by_key:
            groups += self._by_key.get(key, ())
        if self._by_field:
            groups += self._by_fields(change)
        return groups

    def _by_fields(self, change: Change) -> list[Group]:
        now = change.record.fields if change.record is not None else ()
        before = change.previous.fields if change.previous is not None else ()
        exact_fields: dict[ExactField, None] = {}
        for exact in self._fields:
            for values in (now, before):
                if values:
                    exact_fields[(exact, values[exact])] = None
        return [
            group
            for each in exact_fields
            for group in self._by_field.get(each, ())
            if group.selection.covers(change.key)
        ]

    def _reset(self) -> None:
        """End all streams: the watch cache was reloaded."""
        groups, self._groups = list(self._groups.values()), {}
        self._by_key.clear()
        self._by_prefix.clear()
        self._by_field.clear()
        for group in groups:
            for stream in list(group.streams):
                stream.end()
