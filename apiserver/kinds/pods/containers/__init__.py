"""Validation of containers: images, commands, environment, mounts."""
