"""The table that describes all kinds, and the codecs that are driven by it."""
