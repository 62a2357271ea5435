"""The plugins: each refuses nodes, scores them, or both."""
