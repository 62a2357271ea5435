"""StatefulSet: pods with ordinals, each with claims of its own.

controller.py   what wakes a StatefulSet, its revisions and its status
replicas.py     one sync: pods created, repaired, ended and replaced in order
pods.py         pods and claims of an ordinal
claims.py       who owns claims, as the retention policy says
"""
