"""NodeRestriction: limits writes of kubelets, where authorizers would need the objects."""
