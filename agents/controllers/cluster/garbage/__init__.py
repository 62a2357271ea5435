"""Garbage collection: who owns whom, and what goes when owners go."""
