"""What a container uses: as its control group counts, and the files that it wrote.

It says nothing of containers without control groups.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kvstack.agents.kubelet.runtime.cgroups import Cgroups
from kvstack.agents.kubelet.runtime.process.layer_sizes import size_of
from kvstack.agents.kubelet.runtime.runtime import Container, Usage


def usage_of(container: Container, spec: Mapping[str, Any], cgroups: Cgroups) -> Usage | None:
    """Return what a container uses; None: that is not known. spec: as its shim was told."""
    used = cgroups.usage(spec["cgroup"]) if spec["cgroups"] else None
    if used is None:
        return None
    size = size_of(Path(spec["scratch"]) / "upper")
    return Usage(
        container,
        used.cpu_ns,
        used.memory_bytes,
        max(used.memory_bytes - used.inactive_file_bytes, 0),
        used.rss_bytes,
        used.page_faults,
        used.major_page_faults,
        size.bytes,
        size.inodes,
        used.processes,
    )
