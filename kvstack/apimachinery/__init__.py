"""What the API server, the agents and their clients share: objects, and the schema of all kinds."""
