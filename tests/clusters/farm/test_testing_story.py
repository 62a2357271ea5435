"""The story at the beginning of docs/testing.md, run by pytest as a user would."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.clusters.plan.planning import SHOP
from tests.clusters.support.stories import DOCS, LINES

pytestmark = pytest.mark.slow

HEAD = """\
import kubernetes
import pytest

CRON_JOB = {
    "metadata": {"name": "report"},
    "spec": {
        "schedule": "30 * * * *",
        "jobTemplate": {
            "spec": {
                "template": {
                    "spec": {
                        "restartPolicy": "Never",
                        "containers": [{"name": "report", "image": "report:1"}],
                    },
                }
            }
        },
    },
}


"""


def test_the_story(tmp_path: Path) -> None:
    story, mark = (
        [line.removeprefix("    ") for line in block.splitlines()]
        for block in (DOCS / "testing.md").read_text().split("\n\n")
        if (block.startswith("    ") and "contents=" in block) or "test_a_cron_job" in block
    )
    assert len(story) == LINES
    (tmp_path / "test_story.py").write_text(HEAD + "\n".join([*mark, *story]) + "\n")
    shutil.copy(SHOP, tmp_path / "shop.yaml")
    command = [sys.executable, "-m", "pytest", "-p", "kvstack.pytest_plugin", "-q", "-W", "ignore"]
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(tmp_path)],
        cwd=Path(__file__).parents[3],
        env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
