"""Listening: descriptors, addresses, what is accepted."""
