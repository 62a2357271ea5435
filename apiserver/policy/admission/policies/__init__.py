"""Admission policies: objects with CEL expressions that validate or mutate writes."""
