"""The state in LMDB."""
