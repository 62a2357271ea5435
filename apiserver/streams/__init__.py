"""Streams between clients and kubelets: logs, commands, ports.

The server only forwards bytes.
"""
