"""The agents of a cluster: controllers, scheduler and kubelet, which are clients of the API.

    client ◄── reconcile ◄── controllers
       ▲                     scheduler
       └──────────────────── kubelet

They speak to any Kubernetes API server, over HTTP or in process, and
decide without input or output.
"""
