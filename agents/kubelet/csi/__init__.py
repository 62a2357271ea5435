"""Volumes of CSI drivers on one node.

    plugins_registry/* ─► plugin_sockets ─► registration ─► drivers ─► node_info: CSINode, labels
                                                               │
    pod ─► volumes.pod_volumes ─► mounted_volumes ─► mounting ─┴─► node_client: the driver
                                        │
                               volume_data: what the disk knows, for a node that starts anew

`volume` says what a pod or a PersistentVolume asks of a driver, and is pure. A driver may hang,
fail or be gone: whatever it is asked runs in a task of its own, with a limit of time, and only the
volumes of that driver wait for it.
"""
