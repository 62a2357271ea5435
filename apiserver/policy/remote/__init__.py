"""Asking others over HTTP: webhooks of authentication and authorization, issuers of tokens."""
