"""The offline tool: what an operator does to snapshots and data directories nobody serves."""
