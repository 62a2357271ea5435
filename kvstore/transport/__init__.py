"""Sockets: batches in, batches out."""
