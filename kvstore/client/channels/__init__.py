"""The channels of a client: the crate, grpcio, and the member of the same process."""
