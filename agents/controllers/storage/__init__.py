"""Controllers of volumes and claims."""
