"""Simulated nodes and pods: a cluster of thousands of nodes in one process.

    hollow_nodes ─► nodes   what a node says of itself
                 └► pods    what its pods say, by annotations
                 └► hollow_runtime    what seems to run, behind the protocol of all runtimes
                 └► pod_ranges

In the API they differ from real ones only by their names of runtime and system.
"""
