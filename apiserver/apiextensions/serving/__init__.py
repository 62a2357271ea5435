"""Follows CustomResourceDefinitions and serves their custom resources."""
