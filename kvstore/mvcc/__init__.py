"""Revisions of keys: index, store, compaction, hashes."""
