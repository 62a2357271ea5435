"""Events of the past, read from the records for watchers that start late or are behind.

    records   5.0  5.1  5.2 | 6.0 | 7.0  7.1          limit 4 rows from 5 → 5.0 … 6.0, next is 7

One main revision is one atomic change, so it is never split: reading stops before the first main
revision after a limit is reached. The previous value of an event is the one the key had before the
whole change. At the compacted revision itself it no longer exists.
"""

from kvstore.mvcc.event import DELETE, PUT, Event, deletion_kv
from kvstore.mvcc.key_index import KeyIndex
from kvstore.mvcc.records import PAGE_ROWS_MAX, Records
from kvstore.mvcc.revision import parse_revision_key, revision_key
from kvstore.wire.splice import kv_key


def read_history(
    records: Records,
    index: KeyIndex,
    *,
    compacted: int,
    from_main: int,
    to_main: int,
    limit_rows: int,
    limit_bytes: int,
) -> tuple[list[Event], int]:
    """Return (events with from_main <= main < to_main in order, the next main to read).

    At least one whole main revision; stops at the first boundary at or beyond a limit. Needs
    compacted <= from_main. The second is to_main when everything was read.
    """
    events: list[Event] = []
    size_bytes = 0
    at_main = 0
    pager = records.pager(revision_key(max(from_main, 0)), revision_key(max(to_main, from_main)))
    while rows := pager.page(min(PAGE_ROWS_MAX, max(1, limit_rows - len(events)) + 1)):
        for revkey, kv in rows:
            main, sub, tombstone = parse_revision_key(revkey)
            if main != at_main:
                if events and (len(events) >= limit_rows or size_bytes >= limit_bytes):
                    return events, main
                at_main = main
            key = kv_key(kv)
            if main <= compacted:
                if index.record_at(key, compacted) != revkey:
                    continue  # the compaction that is due removes it
                prev = None
            else:
                prev = index.revkey_at(key, main - 1)
            event_kv = deletion_kv(kv, main) if tombstone else kv
            events.append(Event(DELETE if tombstone else PUT, key, event_kv, main, sub, prev))
            size_bytes += len(event_kv)
    return events, max(to_main, from_main)
