"""What a CustomResourceDefinition yields: rows, types, hooks, columns; all of it pure."""
