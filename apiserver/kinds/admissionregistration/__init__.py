"""Webhooks and policies that take part in writes: what they match, and what they ask or decide."""
