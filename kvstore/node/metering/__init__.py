"""Counters, frequent keys and a rate limiter for log lines."""
