"""Watches: streams, their watchers, and the events these are sent."""
