"""The table of etcd's surface: what there is, what proves it, and docs/surface.md made of both."""
