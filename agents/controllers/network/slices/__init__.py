"""EndpointSlices of services, and of Endpoints that are written by hand."""
