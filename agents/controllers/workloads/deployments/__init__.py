"""Deployment: rollouts from old to new ReplicaSets.

controller.py   what wakes a Deployment
rollout.py      one sync: which ReplicaSet grows, which shrinks
revisions.py    which ReplicaSet has the template, revision numbers, annotations
counts.py       how many replicas each may have
status.py       counts and conditions
"""
