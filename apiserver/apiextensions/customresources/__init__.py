"""Kinds that definitions add: what is made of a CustomResourceDefinition, all of it pure."""
