"""Finding the other members of a new cluster: a registry, or DNS."""
