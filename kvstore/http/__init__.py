"""HTTP that is not gRPC, whoever owns the socket: requests, pages by path, WebSockets."""
