"""Workloads, autoscalers and disruption budgets."""
