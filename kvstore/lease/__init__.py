"""Leases: who lives how long, and which keys go with them."""
