"""What happens in a cluster, and which waiting pods it may help."""
