"""Authorization of requests."""
