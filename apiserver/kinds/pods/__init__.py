"""Pods, and the specs of pods that workloads carry."""
