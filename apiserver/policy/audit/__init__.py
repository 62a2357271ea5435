"""Audit: what was asked of the server, by whom, and what came of it."""
