"""Cluster IPs and node ports of Services: pure choices over a snapshot of what is taken."""
