"""The sync of a pod: admission, preparation, starts and stops, and its status.

pod_admission ─► pod_sync ─► preparation, runtime_classes ─► runtime
                     └► status_writer ─► API
"""
