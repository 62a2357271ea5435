"""Watches: who is told of which events, and from when on."""
