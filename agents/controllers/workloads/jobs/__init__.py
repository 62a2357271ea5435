"""Job: pods that run to completion, counted one by one; CronJob and TTL after finished.

controller.py        what wakes a Job; pods whose Job is gone
sync.py              one sync: what a Job has reached, which pods it needs
tracking.py          how ended pods are counted, once each
pods.py              pods of a Job, made and judged
indexes.py           sets of completion indexes and their texts
failure_policy.py    what a failed pod means
back_off.py          how long a Job waits after failures
"""
