"""Requests for certificates, and bundles of those that are to be trusted."""
