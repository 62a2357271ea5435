"""How a pod is carried forward: admitted, prepared, started and stopped, and its status written.

pod_admission ─► pod_sync ─► preparation, runtime_classes ─► runtime
                     └► status_writer ─► API
"""
