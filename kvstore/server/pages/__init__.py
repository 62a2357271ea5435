"""Pages of the client and metrics ports: health, version, profiles, and who may see them."""
