"""What was built: facts of `/version` and of the metric `kubernetes_build_info`."""

import platform
import sys
from typing import Final

from kvstack.component.metrics.exposition import FamilyKind, FamilySamples, labels
from kvstack.component.version import KUBERNETES_VERSION

_MACHINES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
_LABELS: Final = {
    "buildDate": "build_date",
    "compiler": "compiler",
    "gitCommit": "git_commit",
    "gitTreeState": "git_tree_state",
    "gitVersion": "git_version",
    "goVersion": "go_version",
    "major": "major",
    "minor": "minor",
    "platform": "platform",
}


def build_info() -> dict[str, str]:
    """Return the facts by the names of `/version`."""
    major, minor, _ = KUBERNETES_VERSION.split(".")
    machine = platform.machine()
    return {
        "major": major,
        "minor": minor,
        "gitVersion": f"v{KUBERNETES_VERSION}",
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": f"python{'.'.join(map(str, sys.version_info[:3]))}",
        "compiler": platform.python_implementation().lower(),
        "platform": f"{sys.platform}/{_MACHINES.get(machine, machine)}",
    }


def build_family() -> FamilySamples:
    """Return the metric."""
    info = build_info()
    return (
        "kubernetes_build_info",
        FamilyKind.GAUGE,
        "A metric with a constant '1' value labeled by major, minor, git version, git commit, git"
        " tree state, build date, Go version, and compiler from which Kubernetes was built, and"
        " platform on which it is running.",
        {labels(**{label: info[name] for name, label in _LABELS.items()}): 1},
    )
