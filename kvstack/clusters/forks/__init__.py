"""Forks: clusters that begin with the contents of others, each in a process of its user's."""
