"""Controllers of namespaces and of the cluster as a whole."""
