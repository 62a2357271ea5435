"""Node pressure: measurements, conditions and evictions."""
