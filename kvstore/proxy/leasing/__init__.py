"""Leasing: keys that the gRPC proxy owns, so that it can answer reads of them itself."""
