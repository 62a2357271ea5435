"""Clusters with a store in memory: of tests, forks and plans."""
