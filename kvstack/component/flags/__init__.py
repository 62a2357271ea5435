"""Flags as Kubernetes' programs read them."""
