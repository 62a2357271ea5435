"""Quotas: usage of a namespace and its limits."""
