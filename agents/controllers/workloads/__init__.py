"""Controllers that create pods, or objects that do."""
