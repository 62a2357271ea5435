"""Deterministic simulation: real nodes in a world of virtual time and simulated disks."""
