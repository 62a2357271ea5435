"""Requests and answers of a client as bytes."""
