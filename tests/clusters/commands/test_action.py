"""The steps of action.yml, run as a runner of GitHub runs them, with what it has in its place."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.clusters.plan.planning import SHOP

ROOT = Path(__file__).parents[3]
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text())
INPUT = re.compile(r"\$\{\{ inputs\.([a-z-]+) \}\}")
TIMEOUT_S = 180

pytestmark = pytest.mark.slow


def run(name: str, directory: Path, **inputs: str) -> "subprocess.CompletedProcess[str]":
    """Run the step of a name; inputs: with - as _."""
    (step,) = (each for each in ACTION["runs"]["steps"] if each["name"] == name)
    given = {key: each.get("default", "") for key, each in ACTION["inputs"].items()}
    given |= {key.replace("_", "-"): value for key, value in inputs.items()}
    variables = {
        key: INPUT.sub(lambda found: given[found[1]], value) for key, value in step["env"].items()
    }
    runtime = directory / "run"
    runtime.mkdir(mode=0o700, exist_ok=True)
    assert step["shell"] == "bash"
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
        env={
            **os.environ,
            **variables,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "GITHUB_STEP_SUMMARY": str(directory / "summary.md"),
            "XDG_RUNTIME_DIR": str(runtime),
        },
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A directory with a cluster's manifests, and files of a change."""
    documents = SHOP.read_text()
    (tmp_path / "cluster.yaml").write_text(documents)
    (web,) = (
        each
        for each in yaml.safe_load_all(documents)
        if each and each["kind"] == "Deployment" and each["metadata"]["name"] == "web"
    )
    for name, replicas in (("more of it.yaml", 5), ("many.yaml", 500)):
        web["spec"]["replicas"] = replicas
        (tmp_path / name).write_text(yaml.safe_dump(web))
    return tmp_path


def test_no_input_is_part_of_a_script() -> None:
    """Whoever may name a branch or a file would else run commands."""
    for step in ACTION["runs"]["steps"]:
        assert "${{" not in step["run"]
    texts = [text for step in ACTION["runs"]["steps"] for text in step["env"].values()]
    assert {each for text in texts for each in INPUT.findall(text)} == ACTION["inputs"].keys()


def test_what_would_follow_is_in_the_summary(directory: Path) -> None:
    done = run("plan", directory, files="more of it.yaml\n", source="cluster.yaml")
    assert done.returncode == 0, done.stderr
    summary = (directory / "summary.md").read_text()
    assert "shop/web" in summary
    assert "replicas" in summary


def test_what_gets_stuck_fails_the_step(directory: Path) -> None:
    done = run("plan", directory, files="many.yaml", source="cluster.yaml")
    assert done.returncode == 3, done.stderr
    assert "shop/web" in (directory / "summary.md").read_text()
    done = run("plan", directory, files="none.yaml", source="cluster.yaml")
    assert done.returncode == 2
    assert "none.yaml" in done.stderr
    done = run("plan", directory, files="many.yaml", source="--allow-outbound")
    assert done.returncode == 2
    assert "--allow-outbound: it begins as a flag does" in done.stderr


def test_nothing_is_installed_if_no_package_is_named(directory: Path) -> None:
    done = run("install", directory, package="")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
