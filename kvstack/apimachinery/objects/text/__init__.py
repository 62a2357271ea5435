"""Texts in and out: JSON, YAML, JSONPath, PEM, formats, and how Go writes values."""
