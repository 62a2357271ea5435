"""The Service kube-dns, and the EndpointSlices of the servers behind it."""
