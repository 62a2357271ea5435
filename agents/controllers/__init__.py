"""The controllers; folders are families.

    workloads/   ReplicaSet, Deployment, StatefulSet, DaemonSet, Job, CronJob …
    cluster/     namespaces, garbage, quota, service accounts, certificates …
    nodes/       node lifecycle, taints, pod garbage
    network/     endpoints, slices, service ranges
    storage/     volumes and claims

A controller decides without input or output: see `kvstack.agents.reconcile.plan`.
"""
