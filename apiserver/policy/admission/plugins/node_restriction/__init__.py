"""NodeRestriction: what kubelets may write, which authorizers cannot tell without the objects."""
