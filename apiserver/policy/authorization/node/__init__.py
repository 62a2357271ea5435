"""What kubelets may do: read what the pods on their own node need, and write about themselves."""
