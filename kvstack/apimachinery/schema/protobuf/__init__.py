"""The protobuf form of objects: compiled converters between JSON dicts and bytes, and envelopes."""
