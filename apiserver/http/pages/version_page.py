"""/version: the version of the Kubernetes API that is served, and of this program."""

from typing import Any, Final

from kvstack.component.metrics.build_info import build_info

MINOR: Final = "1.37"


def version_info() -> dict[str, Any]:
    """Return the document of /version."""
    info = build_info()
    major, minor = info.pop("major"), info.pop("minor")
    return {
        "major": major,
        "minor": minor,
        "emulationMajor": major,
        "emulationMinor": minor,
        "minCompatibilityMajor": major,
        "minCompatibilityMinor": str(int(minor) - 1),
        **info,
    }
