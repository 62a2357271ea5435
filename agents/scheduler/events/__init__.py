"""Cluster events, and which waiting pods they may help."""
