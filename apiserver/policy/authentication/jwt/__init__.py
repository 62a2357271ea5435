"""Tokens of OpenID Connect and other JWT issuers."""
