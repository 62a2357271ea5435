"""Encryption at rest, in the formats of kube-apiserver."""
