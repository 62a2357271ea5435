"""Controllers of nodes and of pods on lost nodes."""
