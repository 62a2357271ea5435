"""Probes (`prober`) and hooks of running containers, both by `actions`."""
