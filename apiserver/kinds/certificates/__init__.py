"""Certificate requests and trust bundles."""
