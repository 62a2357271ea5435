"""Watches: changes of collections as bytes on the streams of clients."""
