"""The API server: Kubernetes' API on the store."""
