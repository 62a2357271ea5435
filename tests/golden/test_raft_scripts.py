"""The life of raft as golden scripts; see tests/support/raft/script for their language."""

from pathlib import Path

import pytest

from tests.support import golden
from tests.support.raft.script import Script

SCRIPTS = sorted((Path(__file__).parent / "raft").glob("*.txt"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_script(path: Path, rewrite: bool) -> None:  # noqa: FBT001
    golden.run(path, Script().handle, rewrite=rewrite)
