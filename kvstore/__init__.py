"""An etcd 3.7-compatible store: MVCC over LMDB, a raft log in etcd's format, the v3 API."""
