"""Routes to the pods of other nodes.

    node_routes     follows the Nodes of the API, and lets the kernel have what `plan` says
       ├► plan         from Nodes to routes: which are taken, which are refused, and why
       ├► kernel       routes and the tunnel (VXLAN), of which only differences are written
       └► guard        who may send through the tunnel (nftables)

Who gives nodes their ranges is the controller manager's affair (node IPAM); the bridge of this
node's own pods is the runtime's.
"""
