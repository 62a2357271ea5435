"""Authorities, certificates and kubeconfigs: made, kept in files, renewed."""
