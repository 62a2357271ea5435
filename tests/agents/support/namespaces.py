"""Whether this machine lets containers be made."""

import os
import subprocess


def has_namespaces() -> bool:
    """Whether this process may make namespaces."""
    if os.geteuid() != 0:
        return False
    found = subprocess.run(["unshare", "-mpf", "true"], check=False, capture_output=True)
    return found.returncode == 0
