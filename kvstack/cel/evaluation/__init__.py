"""Runs expressions: values, operators, and closures that count what they cost."""
