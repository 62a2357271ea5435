"""Controllers and others with a bug each: every check must find the one it is for.

A bug changes what one of them asks the API server for; the rest of it is the real one.
"""

from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

import orjson

from kvstack.apimachinery.attributes import User
from kvstack.apimachinery.objects.json_object import Object
from tests.sim.stack.links import Asked, Bug

_ACCOUNT: Final = "system:serviceaccount:kube-system:"


def surges_too_much(asked: Asked) -> Asked:
    """A rollout asks for three pods more."""
    return _changed(asked, "/replicasets", lambda obj: _add(obj["spec"], "replicas", 3))


def empties_too_fast(asked: Asked) -> Asked:
    """A rollout ends all pods of a set at once, old or new."""
    if asked.method != "PUT" or asked.target.endswith("/status"):
        return asked
    return _changed(asked, "/replicasets", lambda obj: obj["spec"].update(replicas=0))


def skips_ordinals(asked: Asked) -> Asked:
    """A stateful set makes pods of ordinals that nobody asked for."""

    def rename(pod: Object) -> None:
        name, _, ordinal = pod["metadata"]["name"].rpartition("-")
        pod["metadata"]["name"] = f"{name}-{int(ordinal) + 7}"

    return _changed(asked, "/pods", rename) if asked.method == "POST" else asked


def counts_twice(asked: Asked) -> Asked:
    """A job counts a success more than there are."""
    return _changed(asked, "/status", lambda obj: _add(obj["status"], "succeeded", 1))


def allows_too_much(asked: Asked) -> Asked:
    """A budget allows more than it should."""
    return _changed(asked, "/status", lambda obj: _add(obj["status"], "disruptionsAllowed", 5))


def fills_one_node(asked: Asked) -> Asked:
    """All pods are bound to the first node."""
    return _changed(asked, "/binding", lambda obj: obj["target"].update(name="n0"))


def leaves_no_time(asked: Asked) -> Asked:
    """Pods are removed behind the back of their nodes."""
    if asked.method != "DELETE" or "/pods/" not in asked.target:
        return asked
    return _changed(asked, "/pods/", lambda options: options.update(gracePeriodSeconds=0))


def only_tries(asked: Asked) -> Asked:
    """The collector's deletions are tried, not done."""
    if asked.method != "DELETE":
        return asked
    return _changed(asked, "", lambda options: options.update(dryRun=["All"]))


class Canary(NamedTuple):
    """A bug of a user's requests, and words of the check that finds it."""

    user: str
    alter: Callable[[Asked], Asked]
    words: str
    often: str = ""
    """What users do more than anything else."""


CANARIES: Final = (
    Canary(f"{_ACCOUNT}deployment-controller", surges_too_much, "at most"),
    Canary(f"{_ACCOUNT}deployment-controller", empties_too_fast, "at least"),
    Canary(f"{_ACCOUNT}statefulset-controller", skips_ordinals, "was not asked for", "make"),
    Canary(f"{_ACCOUNT}job-controller", counts_twice, "successes of"),
    Canary(f"{_ACCOUNT}disruption-controller", allows_too_much, "allows too much"),
    Canary("system:kube-scheduler", fills_one_node, "does not fit"),
    Canary(f"{_ACCOUNT}replicaset-controller", leaves_no_time, "was removed while it ran", "scale"),
    Canary(f"{_ACCOUNT}generic-garbage-collector", only_tries, "it does not settle", "delete"),
)


def planted(canary: Canary) -> Bug:
    """Return what changes the requests of the user with the bug."""
    return partial(_alter, canary)


def _alter(canary: Canary, user: User, asked: Asked) -> Asked:
    return canary.alter(asked) if user.name == canary.user else asked


def _changed(asked: Asked, words: str, change: Callable[[Object], object]) -> Asked:
    """Change the body of a write whose target has these words."""
    if not asked.body or words not in asked.target:
        return asked
    obj = orjson.loads(asked.body)
    change(obj)
    return asked._replace(body=orjson.dumps(obj))


def _add(obj: Object, field: str, number: int) -> None:
    obj[field] = obj.get(field, 0) + number
