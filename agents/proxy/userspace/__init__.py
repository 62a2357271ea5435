"""The proxy without root or nftables: listeners of this process, which pass connections on.

It serves node ports, and external addresses that are this machine's own. Cluster IPs belong to no
interface, so no listener can have them: they are not served, and the log says so.
"""
