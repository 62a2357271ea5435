"""Garbage collection by owner references."""
