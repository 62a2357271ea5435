"""Service account tokens: issuing, validation, and discovery documents."""
