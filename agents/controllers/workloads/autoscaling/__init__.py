"""HorizontalPodAutoscaler: replicas by the pods' usage.

controller.py        one sync: the target's scale, the status
metrics.py           what each metric proposes, read from the APIs of metrics
proportions.py       replicas from usage and target
recommendations.py   what was proposed and done before, and how fast may be scaled
"""
