"""Runs a script against a cluster: the objects that it leaves are what others begin with.

prepare(["./bootstrap.sh"], directory, nodes=1)     → a packed file
"""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from kvstack.agents.standalone.in_memory.background import BackgroundCluster, Settings
from kvstack.agents.standalone.in_memory.cluster_time import VIRTUAL
from kvstack.clusters.contents import Contents, Origin
from kvstack.clusters.pack.packed_file import write_pack
from kvstack.component.errors import ConfigError

FILE: Final = "prepared.kvs"
SCRIPT_S_MAX: Final = 1_800.0
_SETTLE_S: Final = 120.0


def prepare(command: Sequence[str], directory: Path, nodes: int) -> Path:
    """Return the packed file; raises ConfigError: the script failed, NotSettledError."""
    with BackgroundCluster(directory / "preparing", Settings(nodes, clock=VIRTUAL)) as cluster:
        environ = {**os.environ, "KUBECONFIG": str(cluster.kubeconfig)}
        try:
            done = subprocess.run(
                command, env=environ, stdout=sys.stderr, check=False, timeout=SCRIPT_S_MAX
            )
        except OSError as error:
            raise ConfigError(f"--prepare {command[0]}: {error.strerror}") from error
        except subprocess.TimeoutExpired:
            raise ConfigError(f"--prepare {command[0]}: not done in {SCRIPT_S_MAX:g} s") from None
        if done.returncode:
            raise ConfigError(f"--prepare {command[0]}: it ended with code {done.returncode}")
        cluster.settle(_SETTLE_S)
        rows = cluster.rows()
    records = sorted(rows.records, key=lambda kv: kv.key)
    path = directory / FILE
    write_pack(path, Contents(records, rows.revision, Origin("script", command[0])), None)
    return path
