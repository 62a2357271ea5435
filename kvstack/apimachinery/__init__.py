"""Shared by the API server, the agents and their clients: objects, and the schema of all kinds."""
