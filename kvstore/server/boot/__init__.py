"""From a configuration to a node that can take turns."""
