"""The portable transport, over grpcio."""
