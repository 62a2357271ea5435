"""The proxies between clients and a cluster.

    kvstore gateway      relays TCP connections, whatever their protocol
    kvstore grpc-proxy   serves the API itself: shares watches, caches reads, keeps leases alive

Neither stores data or is a member of a cluster; both are processes of their own.
"""
