"""The kubelet: runs the pods that are bound to its node, and reports their status.

    command ─► real_node ─► kubelet ─► sync/ ─► runtime/   processes, or a container engine
                   └► server/   ├► static/ └► pods/, images/, volumes/, lifecycle/
                                └► node/, housekeeping ─► eviction/
    hollow/    nodes that only pretend, thousands in one process

What decides (`pods`) is pure: a pod, what is known of its containers, and the time give what to do
next.
"""
