"""Quotas: what the objects of a namespace use, and how much of it is left."""
