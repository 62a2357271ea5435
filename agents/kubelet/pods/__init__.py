"""Decisions of a kubelet about a pod: pure functions of the pod, its containers and the time.

    admission    what this node cannot do is refused, never ignored
    worker       which containers start and stop now
    restarts     whether and when a container starts again
    lost         containers known only from the pod's status
    status       what the pod's status says, with `container_statuses` and `conditions`
    environment  the variables of a container
    files        the contents of volumes that the API holds
    logs         CRI's log lines, and what `kubectl logs` selects of them

Nothing here waits or touches the machine.
"""
