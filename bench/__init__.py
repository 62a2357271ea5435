"""Benchmarks: this server beside real etcd, in one run, on one disk, with equal durability."""
