"""/version: the version of the Kubernetes API that is served, and of this program."""

import platform
import sys
from typing import Any, Final

from kvstack.component.version import KUBERNETES_VERSION

MINOR: Final = "1.37"


def version_info() -> dict[str, Any]:
    """Return the document of /version."""
    major, minor, _ = KUBERNETES_VERSION.split(".")
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    python = ".".join(map(str, sys.version_info[:3]))
    return {
        "major": major,
        "minor": minor,
        "emulationMajor": major,
        "emulationMinor": minor,
        "minCompatibilityMajor": major,
        "minCompatibilityMinor": str(int(minor) - 1),
        "gitVersion": f"v{KUBERNETES_VERSION}",
        "gitCommit": "",
        "gitTreeState": "clean",
        "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": f"python{python}",
        "compiler": platform.python_implementation().lower(),
        "platform": f"{sys.platform}/{machine}",
    }
