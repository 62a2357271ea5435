"""Differences of two contents: by the schema of each kind, in the terms that people use."""
