"""The agents of a cluster: controllers, scheduler, kubelet; clients of the API like anyone else.

    client ◄── reconcile ◄── controllers
       ▲                     scheduler
       └──────────────────── kubelet

They speak to any Kubernetes API server, over HTTP or in process, and
decide without input or output.
"""
