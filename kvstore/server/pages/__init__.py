"""Pages of the client and metrics ports: health, version, profiles, and the access check."""
