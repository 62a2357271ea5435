"""The multi-version store: key index, records, compaction, hashes."""
