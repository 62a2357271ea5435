"""RBAC: roles and bindings."""
