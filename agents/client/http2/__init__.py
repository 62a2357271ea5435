"""An HTTP/2 client of one server: many requests at once on one connection."""
