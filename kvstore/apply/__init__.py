"""Applies committed entries: each becomes a result and events."""
