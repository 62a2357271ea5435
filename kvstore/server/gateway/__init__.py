"""The JSON gateway: gRPC calls as HTTP requests with JSON bodies."""
