"""Hooks of CustomResourceDefinitions: names, versions, and validation of schemas."""
