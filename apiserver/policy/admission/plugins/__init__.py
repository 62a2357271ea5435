"""The plugins, a module each."""
