"""SPDY/3.1, as Kubernetes' streams use it: many streams of bytes on one connection.

session ─► frames      bytes ↔ frames, and the state of header compression
   └ pipes             what a connection is carried by: a socket, or a WebSocket
"""
