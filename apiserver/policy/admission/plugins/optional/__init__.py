"""Plugins of admission that are off unless they are asked for."""
