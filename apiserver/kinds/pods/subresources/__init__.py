"""Subresources of pods."""
