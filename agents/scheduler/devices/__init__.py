"""Allocation of devices to claims of pods on a node (structured parameters). Pure."""
