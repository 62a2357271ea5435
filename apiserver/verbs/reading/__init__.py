"""Get, list and watch."""
