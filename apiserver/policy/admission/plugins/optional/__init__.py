"""Admission plugins that are disabled by default."""
