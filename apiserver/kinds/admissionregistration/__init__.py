"""Admission webhooks and policies."""
