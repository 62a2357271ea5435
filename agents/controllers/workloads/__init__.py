"""Controllers that make pods, or what makes pods."""
