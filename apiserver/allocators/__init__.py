"""Allocators of cluster IPs and node ports: pure choices over a snapshot of allocations."""
