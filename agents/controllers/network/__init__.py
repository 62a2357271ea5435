"""Controllers of Services and their endpoints."""
