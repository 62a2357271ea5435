"""A store that passes for etcd 3.7: MVCC over LMDB, a raft log in etcd's own bytes, the v3 API."""
