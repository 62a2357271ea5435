"""Listening and dialling: descriptors, addresses, accepted connections, firewall programs."""
