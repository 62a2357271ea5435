"""Delete and deletecollection: their plan, its execution, and the end of namespaces."""
