"""Snapshot files, and snapshots between members."""
