"""DaemonSet: a pod on every eligible node.

controller.py   what wakes a DaemonSet, its sync and its status
placement.py    which nodes suit, and pods made for a node
rollout.py      which pods are replaced by those of a new template
revisions.py    the history of templates
"""
