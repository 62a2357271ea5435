"""Admission policies: objects with expressions that refuse or change what is written."""
