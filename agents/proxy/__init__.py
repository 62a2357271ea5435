"""The proxy: traffic to a Service reaches its endpoints. `kvstack proxy`, with kube-proxy's flags.

    Services ─► services ─┐
                          ├─► choice ─► nftables | userspace
    EndpointSlices ─► endpoints ┘

What is served is decided without input or output (`services`, `endpoints`, `choice`,
`cluster_view`); a backend makes it true. `proxier` is what runs on a node, `process` the program.
"""
