"""The network of nodes of processes, for pods of container engines: a plugin of CNI 1.0 and 1.1.

    command     what engines execute, and `kvstack cni install`, which writes what they read
      └► plugin     ADD, DEL, CHECK, GC, STATUS, VERSION: one bridge, a pair of interfaces a pod
           └► attachments   which containers have which addresses, on the disk

Routes to other nodes are `kvstack kubelet --network`'s, Services are the proxy's.
"""
