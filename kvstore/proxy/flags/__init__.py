"""The flags of the proxies, as Go's flag package takes them."""
