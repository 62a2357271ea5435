"""Delete and deletecollection: what a delete looks at, what it does, and how namespaces end."""
