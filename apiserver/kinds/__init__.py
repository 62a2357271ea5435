"""What a schema cannot say of the built-in kinds: defaults, preparation, validation, columns."""
