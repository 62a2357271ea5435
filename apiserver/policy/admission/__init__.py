"""Admission: plugins that mutate or validate an object before it is stored."""
