"""Users, roles, permissions and tokens: who may do what."""
