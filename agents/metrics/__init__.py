"""The usage of nodes and pods: read from kubelets, kept for a while, served as metrics.k8s.io.

readings       one kubelet's metrics, read from its /metrics/resource
points         rates of two readings, for the API
history        a quarter of an hour, for graphs
collector      reads all nodes from time to time
resource_api   metrics.k8s.io itself
history_api    the history
kubelets       reads them over HTTPS
command        all of it as a program, behind an API server
custom         metrics that pods expose
"""
