"""docs/metrics.md says of every metric whether it is etcd's, differs, or is not there, and why.

The table is made from the families that are served; `--rewrite` writes it. etcd's own names are
listed here, as of 3.7.1.
"""

from pathlib import Path

from kvstack.component.metrics.exposition import FamilyKind
from kvstack.component.metrics.process_families import read_process
from kvstore.server.metrics.page import FAMILIES

DOCS = Path(__file__).parents[3] / "docs" / "metrics.md"

HEAD = """\
# Metrics

`GET /metrics` on the client port, or on the addresses of `--listen-metrics-urls`, in Prometheus's
text format. Names, kinds, labels, buckets and help texts are those of etcd 3.7.1, so its standard
alerts and dashboard work unchanged. `--metrics=extensive` adds `grpc_server_handling_seconds`.

Counters are read between two turns, so all of one page are of one moment. While a turn is stuck (a
disk that hangs) the page shows the last ones, and `kvstore_metrics_age_seconds` how old they are.

*works*: as in etcd. *differs*: how. *own*: etcd has nothing like it. This table is made by
`tests/unit/server/test_metrics_docs.py`.

| metric | kind | |
|---|---|---|
"""

MISSING = """
## Not there

| metric | why |
|---|---|
"""

DIFFERS = {
    "etcd_debugging_disk_backend_commit_write_duration_seconds": "all of a commit is writing",
    "etcd_debugging_mvcc_db_compaction_pause_duration_milliseconds": "one slice of a compaction",
    "etcd_debugging_mvcc_db_compaction_total_duration_milliseconds": "the sum of its slices",
    "etcd_debugging_mvcc_events_total": "before the watchers' filters",
    "etcd_debugging_mvcc_pending_events_total": "always 0: a watcher that lags reads history",
    "etcd_debugging_mvcc_total_put_size_in_bytes": "bytes of the stored records, deletions too",
    "etcd_mvcc_db_open_read_transactions": "snapshots being written: all else is one transaction",
    "etcd_mvcc_hash_duration_seconds": "the sum of its slices",
    "etcd_mvcc_hash_rev_duration_seconds": "the sum of its slices",
    "etcd_server_apply_duration_seconds": "puts share the time of their batch equally",
    "etcd_server_client_requests_total": "at most 32 versions by name, the rest as `other`",
    "etcd_server_go_version": "Python's version",
    "etcd_server_range_duration_seconds": "ranges of one turn share its time equally",
    "etcd_server_request_duration_seconds": (
        "from the turn that took the request in; a Txn that only reads is `Txn`; the member's own "
        "requests are left out"
    ),
    "etcd_server_snapshot_apply_in_progress_total": "always 0: it is done within one turn",
    "etcd_snap_db_save_total_duration_seconds": "with receiving it",
    "etcd_snap_fsync_duration_seconds": "with writing the file",
    "go_threads": "threads of the process; the other go_* are Go's own",
    "grpc_server_handling_seconds": "from the turn that took the call in",
}
NOT_SERVED = {
    "etcd_debugging_disk_backend_commit_rebalance_duration_seconds": "LMDB has no such phase",
    "etcd_debugging_disk_backend_commit_spill_duration_seconds": "LMDB has no such phase",
    "etcd_debugging_mvcc_index_compaction_pause_duration_milliseconds": (
        "the index is compacted with the records"
    ),
    "etcd_debugging_server_watch_send_loop_control_stream_duration_seconds": (
        "a stream has no loop of its own"
    ),
    "etcd_debugging_server_watch_send_loop_progress_duration_seconds": (
        "a stream has no loop of its own"
    ),
    "etcd_debugging_server_watch_send_loop_watch_stream_duration_per_event_seconds": (
        "a stream has no loop of its own"
    ),
    "etcd_debugging_server_watch_send_loop_watch_stream_duration_seconds": (
        "a stream has no loop of its own"
    ),
    "etcd_debugging_snap_save_marshalling_duration_seconds": "part of saving, too short to time",
    "etcd_debugging_store_expires_total": "there is no v2 store",
    "etcd_debugging_store_reads_failed_total": "there is no v2 store",
    "etcd_debugging_store_reads_total": "there is no v2 store",
    "etcd_debugging_store_watch_requests_total": "there is no v2 store",
    "etcd_debugging_store_watchers": "there is no v2 store",
    "etcd_debugging_store_writes_failed_total": "there is no v2 store",
    "etcd_debugging_store_writes_total": "there is no v2 store",
    "etcd_grpc_proxy_cache_hits_total": "the proxy's, not the server's",
    "etcd_grpc_proxy_cache_keys_total": "the proxy's, not the server's",
    "etcd_grpc_proxy_cache_misses_total": "the proxy's, not the server's",
    "etcd_grpc_proxy_events_coalescing_total": "the proxy's, not the server's",
    "etcd_grpc_proxy_watchers_coalescing_total": "the proxy's, not the server's",
    "etcd_network_server_stream_failures_total": "a stream that fails is ended by the transport",
    "etcd_snap_db_fsync_duration_seconds": "part of etcd_snap_db_save_total_duration_seconds",
    "go_gc_*, go_goroutines, go_memstats_*, go_sched_*": "Go's runtime",
    "promhttp_metric_handler_*": "Go's HTTP handler",
}
AGE = ("kvstore_metrics_age_seconds", FamilyKind.GAUGE)


def served() -> dict[str, FamilyKind]:
    found = {family.name: family.kind for family in FAMILIES}
    found |= {name: kind for name, kind, _, _ in read_process()}
    return found | dict([AGE])


def table() -> str:
    rows = []
    for name, kind in sorted(served().items()):
        if name.startswith("kvstore_"):
            verdict = "own"
        elif name in DIFFERS:
            verdict = f"differs: {DIFFERS[name]}"
        else:
            verdict = "works"
        rows.append(f"| `{name}` | {kind.value} | {verdict} |\n")
    missing = [f"| `{name}` | {why} |\n" for name, why in sorted(NOT_SERVED.items())]
    return HEAD + "".join(rows) + MISSING + "".join(missing)


def test_the_table_is_up_to_date(*, rewrite: bool) -> None:
    text = table()
    if rewrite:
        DOCS.parent.mkdir(exist_ok=True)
        DOCS.write_text(text, encoding="utf-8")
    assert DOCS.read_text(encoding="utf-8") == text


def test_names_are_served_once_and_explained_once() -> None:
    names = [family.name for family in FAMILIES]
    assert len(names) == len(set(names))
    assert DIFFERS.keys() <= served().keys()
    assert not NOT_SERVED.keys() & served().keys()
    assert all(name.startswith(("etcd_", "grpc_server_", "kvstore_")) for name in names)
