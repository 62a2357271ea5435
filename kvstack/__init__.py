"""The Kubernetes-compatible control plane; its packages are the folders beside this one."""
