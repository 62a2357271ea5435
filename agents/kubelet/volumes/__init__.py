"""The volumes of pods.

pod_volumes ─► directories    what is on the node's disk
     └ reads what the API holds, and renews it
"""
