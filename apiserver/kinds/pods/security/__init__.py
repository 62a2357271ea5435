"""Validation of security contexts, and of their limits by operating system."""
