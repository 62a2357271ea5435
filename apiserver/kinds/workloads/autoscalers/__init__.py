"""HorizontalPodAutoscalers: how many pods a workload has, by what is measured."""
