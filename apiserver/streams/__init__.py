"""Streams between clients and kubelets: logs, commands, ports.

The server carries bytes, no more.
"""
