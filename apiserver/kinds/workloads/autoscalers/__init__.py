"""HorizontalPodAutoscalers: replicas of a workload by metrics."""
