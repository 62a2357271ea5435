"""Roles and what gives them to users, groups and ServiceAccounts."""
