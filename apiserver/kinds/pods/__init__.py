"""Pods, and the pod specs of workloads."""
