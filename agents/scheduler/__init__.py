"""The scheduler: chooses a node for each pod.

    pods, nodes, … ─► cluster (columns over nodes) ─► schedule(pod, cluster, profile) ─► decision
                                                                                          │
    queue ◄── not placed: back-off, or until something changes ◄──────────────────────────┤
    API   ◄── placed: assumed in the cluster at once, then bound ◄────────────────────────┘

The core decides without clock, socket or event loop. numpy is used here only: import this package
where a scheduler is wanted, not before.
"""
