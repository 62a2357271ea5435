"""Keys that the gRPC proxy owns and answers itself."""
