"""The node's agent: it runs the pods that are bound to its node, and says how they are.

    command ─► real_node ─► kubelet ─► pod_sync ─► runtime/   processes, or a container engine
                   └► server/   └► static/  └► pods/       what is decided
    hollow/    nodes that only pretend, thousands in one process

What decides is pure: a pod, what is known of its containers, and the time give what to do next.
"""
