"""Subresources with a behavior of their own."""
