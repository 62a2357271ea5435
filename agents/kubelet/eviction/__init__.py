"""When a node runs short: what it measures, tells and evicts."""
