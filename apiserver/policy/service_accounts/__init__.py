"""Tokens of service accounts: made, checked, and described for others to check."""
