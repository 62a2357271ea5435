"""`kvstore gateway`: TCP connections relayed to members."""
