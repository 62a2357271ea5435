"""A directory whose path is short enough for sockets below it."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvstack.agents.kubelet.disk.mount_table import take_away


@pytest.fixture
def short_directory() -> Iterator[Path]:
    directory = Path(tempfile.mkdtemp(prefix="csi-"))
    yield directory
    take_away(directory)
    shutil.rmtree(directory)
