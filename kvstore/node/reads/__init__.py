"""Ranges and other requests that change nothing."""
