"""Audit: requests, their users and their outcomes."""
