"""Controllers of what services send to."""
