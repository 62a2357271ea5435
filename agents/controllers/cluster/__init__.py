"""Controllers of what every cluster and namespace has."""
