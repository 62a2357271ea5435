"""Workloads of whole clusters: `kvstack up`, and its forks."""
