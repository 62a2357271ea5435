"""The plugins: each filters nodes, scores them, or both."""
