"""Disk: the write-ahead log, LMDB, snapshot files, the etcd database file."""
