"""Volumes, claims, storage classes and drivers."""
