"""Streams of messages between members, and the threads that empty and fill them."""
