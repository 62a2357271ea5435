"""What a node counts, and how often it may log."""
