"""Pages that a cluster in one process has at its API server's port."""
