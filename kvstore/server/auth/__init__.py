"""Passwords and tokens: the slow and the secret part of authentication."""
