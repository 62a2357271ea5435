"""Sources of contents: one module each, and one interface (`source`)."""
