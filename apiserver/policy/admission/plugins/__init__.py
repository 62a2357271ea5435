"""The admission plugins, one per module."""
