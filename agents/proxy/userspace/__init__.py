"""The proxy without nftables and iptables: listeners of this process, which pass connections on.

It serves node ports, external addresses that are this machine's own and, with the right to make
their range local, cluster IPs.
"""
