"""HTTP that is not gRPC, whoever owns the socket: exchanges, pages by path, WebSockets."""
