"""Volumes, claims, classes and drivers of storage."""
