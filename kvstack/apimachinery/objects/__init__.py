"""Pure functions on plain objects: no clock, no randomness, no IO, no knowledge of kinds."""
