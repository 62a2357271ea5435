"""Configuration, identity, namespaces, nodes, quotas, events and leases."""
