"""Expressions in CEL about requests: what they see, how they ask the authorizer."""
