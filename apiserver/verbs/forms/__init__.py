"""Bodies in media types, and objects in versions."""
