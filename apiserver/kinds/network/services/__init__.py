"""Services: ports, single-stack and dual-stack addresses, and the fields of each type."""
