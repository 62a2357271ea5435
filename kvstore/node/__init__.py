"""The turn: from an inbox to an outbox."""
