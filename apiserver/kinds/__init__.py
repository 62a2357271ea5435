"""Built-in kinds beyond their schema: defaults, preparation, validation, columns."""
