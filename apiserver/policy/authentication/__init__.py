"""Authentication: whose a request is."""
