"""The DNS of a cluster, `kvstack dns`: the names of Services and their endpoints.

    Services, EndpointSlices ─► cluster ─► responder ◄── udp_port, tcp_port ◄── pods
                                              │
                                              └─► forwarding ─► resolvers of the node, stub domains

`cluster` knows names and answers and is pure, `query` and `prepared` are bytes of the wire.
"""
