"""Certificates, keys and kubeconfig files."""
