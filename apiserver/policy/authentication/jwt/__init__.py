"""Tokens of OpenID Connect, and of other issuers of signed claims (JWT)."""
