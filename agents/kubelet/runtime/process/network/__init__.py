"""The network of pods that run as processes: each has a namespace of its own, and an address.

    pod_network     addresses of the node's range, one bridge, a pair of interfaces for each pod
       ├► netlink      interfaces, addresses and routes of the kernel
       └► translation  what leaves the range and what comes for ports of the node (nftables)
    cluster_range   which range a cluster of one machine takes

A machine that lets none be made, and a node that has no range, has pods that share its network.
"""
