"""Watches of many clients over few streams to the cluster."""
