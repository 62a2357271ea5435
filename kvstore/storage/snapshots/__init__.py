"""Snapshots: etcd's .snap files, database files for clients, and states for other members."""
