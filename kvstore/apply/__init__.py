"""Committed entries become results and events."""
