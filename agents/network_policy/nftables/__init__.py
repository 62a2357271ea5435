"""The table that enforces policies: `rules` says how a rule reads, `table` writes differences."""
