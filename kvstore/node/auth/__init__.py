"""Authentication and permission checks of calls and streams."""
