"""Leases: their TTLs, and the keys attached to them."""
