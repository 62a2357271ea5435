"""Services: ports, addresses of one or two families, and what each type of Service may set."""
