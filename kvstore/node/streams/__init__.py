"""Watch and lease keep-alive streams."""
