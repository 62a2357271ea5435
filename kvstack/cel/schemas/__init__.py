"""Schemas of custom resources as expressions see them: types, sizes, values, rules."""
