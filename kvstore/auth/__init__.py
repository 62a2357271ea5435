"""Users, roles, permissions and tokens."""
