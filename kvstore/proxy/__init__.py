"""The commands that stand between clients and a cluster.

    kvstore gateway      relays TCP connections, whatever they carry
    kvstore grpc-proxy   speaks the API itself: shares watches, caches reads, keeps leases alive

Neither has data or takes part in a cluster; both are processes of their own.
"""
