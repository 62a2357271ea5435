"""HTTP calls to webhooks and token issuers."""
