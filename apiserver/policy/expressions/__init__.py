"""CEL expressions on requests: their variables, and their authorization checks."""
