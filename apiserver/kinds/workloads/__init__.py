"""Workloads: what makes pods, scales them and guards them."""
