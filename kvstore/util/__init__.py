"""The offline tool for snapshots and data directories that no server is using."""
