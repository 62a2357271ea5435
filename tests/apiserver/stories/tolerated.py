"""Steps of stories that are compared less strictly than they were recorded, each with its reason.

A row names steps by the words their command begins with after `-n NAMESPACE` is taken out, and how
they are compared instead (masks.py).
"""

from typing import Any, NamedTuple


class Weaker(NamedTuple):
    """Which commands, and how they are compared."""

    why: str
    command: str
    compare: str
    clients: tuple[str, ...] = ()  # only what these print; empty: all


WEAKER = (
    Weaker("limits are described in the order of a map", "kubectl describe ns", "sorted"),
    Weaker("labels are listed in the order of a map", "kubectl label cm one --list", "sorted"),
    Weaker("components are listed as their checks end", "kubectl get cs", "sorted"),
    Weaker(
        "objects made one after the other are sorted by the second that each was made in",
        "kubectl get cm --sort-by=.metadata.creationTimestamp",
        "sorted",
    ),
    Weaker(
        "members of custom objects are checked in the order of a map",
        "kubectl apply -f bad.yaml",
        "sorted",
    ),
    Weaker(
        "kubectl has refused pods in a map, whose order is drawn", "kubectl drain", "sorted-words"
    ),
    Weaker("releases of one second are listed by their names", "helm list -d", "sorted"),
    Weaker(
        "helm shows kinds in the order of a map, and the header of neighbours with the same once",
        "helm status one",
        "set",
        ("4.3.1",),
    ),
    *(
        Weaker(
            "it prints data in the order of a map",
            f"kubectl describe {what}",
            "sorted",
            ("1.28.3", "1.32.5", "1.36.3"),
        )
        for what in ("cm", "secret", "-f cms.yaml")
    ),
)


def compare_of(step: dict[str, Any], client: str) -> str:
    """Return how a step is compared."""
    words = list(step["run"])
    if words[1:2] == ["-n"]:
        del words[1:3]
    command = " ".join(words)
    for row in WEAKER:
        if command.startswith(row.command) and (not row.clients or client in row.clients):
            return row.compare
    return str(step.get("compare", ""))
