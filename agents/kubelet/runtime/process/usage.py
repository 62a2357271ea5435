"""The resource usage of a container: of its control group, and of its files.

It says nothing of containers without control groups.
"""

from pathlib import Path

from kvstack.agents.kubelet.runtime.cgroups import Cgroups
from kvstack.agents.kubelet.runtime.process.layer_sizes import size_of
from kvstack.agents.kubelet.runtime.process.shim.launch_spec import LaunchSpec
from kvstack.agents.kubelet.runtime.runtime import Container, Usage


def usage_of(container: Container, spec: LaunchSpec, cgroups: Cgroups) -> Usage | None:
    """Return what a container uses; None: that is not known. spec: what its shim runs."""
    used = cgroups.usage(spec.cgroup_path) if spec.cgroup_files else None
    if used is None:
        return None
    size = size_of(Path(spec.scratch) / "upper")
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
        used.counts,
    )
