"""The text of an expression becomes a tree: tokens, grammar, macros."""
