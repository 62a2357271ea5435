"""Clusters whose store is in memory: of tests, forks and plans."""
