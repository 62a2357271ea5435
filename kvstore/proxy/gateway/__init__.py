"""`kvstore gateway`: relays TCP connections to members."""
