"""Create, update and patch: from a request's body to the transaction that stores the object."""
