"""Ranges and other questions that change nothing."""
