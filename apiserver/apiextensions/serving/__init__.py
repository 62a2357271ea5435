"""Follows CustomResourceDefinitions and serves the custom resources they define."""
