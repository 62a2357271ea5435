"""HTTP/2 as a client of one server speaks it: many requests at once on one connection."""
