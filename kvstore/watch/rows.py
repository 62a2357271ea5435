"""The watchers of one range in rows: those of one stream that are sent the same messages.

    group   w1@A  w2@A  w3@B  w4@A         (@ stream; w4 wants previous values)
    rows    A: w1 w2     B: w3     A: w4

The messages of a row differ in the watch id alone, so a fan-out needs one step a row, not one a
watcher. Rows hold for synced watchers from the next revision on, until their group changes.
"""

from collections.abc import Iterable

from kvstore.watch.stream import Stream, Watcher


class Row:
    """Watchers of one range and one stream with the same flavor."""

    __slots__ = ("flavor", "id_fields", "notified", "stream", "watchers")

    def __init__(self, stream: Stream, flavor: int) -> None:
        self.stream = stream
        self.flavor = flavor
        self.watchers: list[Watcher] = []
        self.id_fields: tuple[bytes, ...] = ()  # the same object for rows with the same ids
        self.notified: list[Watcher] = []  # with periodic progress notifications


def rows_of(group: Iterable[Watcher], next_revision: int) -> list[Row] | None:
    """Return the rows of synced watchers; None if one of them starts after next_revision."""
    rows: dict[tuple[int, int], Row] = {}
    for watcher in group:
        if watcher.next_revision > next_revision:
            return None
        stream, flavor = watcher.stream, watcher.flavor
        row = rows.get((stream.id, flavor))
        if row is None:
            row = rows[stream.id, flavor] = Row(stream, flavor)
        row.watchers.append(watcher)
        if watcher in stream.notified:
            row.notified.append(watcher)
    shared: dict[tuple[bytes, ...], tuple[bytes, ...]] = {}
    for row in rows.values():
        id_fields = tuple(watcher.id_field for watcher in row.watchers)
        row.id_fields = shared.setdefault(id_fields, id_fields)
    return list(rows.values())
