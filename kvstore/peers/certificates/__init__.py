"""Which certificates of members are accepted."""
