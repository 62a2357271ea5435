"""The benchmarks run: small sizes, every step, a page in the end. Their numbers mean nothing."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench import h2, kvload
from kvstore.transport import native

ROOT = Path(__file__).parents[2]


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bench", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.mark.e2e
@pytest.mark.slow
def test_quick_run_measures_both_servers(tmp_path: Path) -> None:
    results = tmp_path / "results"
    done = bench("--quick", "keys-1m", f"--work={tmp_path}", f"--results={results}")
    assert done.returncode == 0, done.stderr
    found = json.loads((results / "keys-1m.json").read_text())
    assert all(row["kvstore"]["rounds"] and row["etcd"]["rounds"] for row in found["figures"])
    assert f"## {found['title']}\n" in (results / "README.md").read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["results"]  # it cleans up


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "cluster-rates",
        "cluster-fanout",
        "catch-up",
        "snapshot",
        "slow-link",
        "security",
        "kubernetes",
    ],
)
def test_clusters_and_security_and_kubernetes_are_measured(name: str, tmp_path: Path) -> None:
    if why := kvload.missing() or h2.missing():
        pytest.skip(why)
    results = tmp_path / "results"
    done = bench("--quick", name, f"--work={tmp_path}", f"--results={results}")
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((results / f"{name}.json").read_text())
    assert all(row["kvstore"]["rounds"] and row["etcd"]["rounds"] for row in found["figures"])
    assert [path.name for path in tmp_path.iterdir()] == ["results"]


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.parametrize("name", ["clients", "embedded", "http"])
def test_what_other_programs_use_is_measured(name: str, tmp_path: Path) -> None:
    if why := h2.missing() or ("" if native.is_available() else "the crate was not built"):
        pytest.skip(why)
    results = tmp_path / "results"
    done = bench("--quick", name, f"--work={tmp_path}", f"--results={results}")
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((results / f"{name}.json").read_text())
    assert all(row["kvstore"]["rounds"] for row in found["figures"])


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.parametrize("name", ["api-server", "api-pods"])
def test_api_servers_are_measured(name: str, tmp_path: Path) -> None:
    if why := kvload.missing():
        pytest.skip(why)
    results = tmp_path / "results"
    done = bench("--quick", name, f"--work={tmp_path}", f"--results={results}")
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((results / f"{name}.json").read_text())
    assert all(row["kvstore"]["rounds"] for row in found["figures"])
    assert "No kube-apiserver and etcd were given" in (results / "README.md").read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["results"]


@pytest.mark.e2e
@pytest.mark.slow
def test_the_stack_is_measured(tmp_path: Path) -> None:
    results = tmp_path / "results"
    done = bench("--quick", "stack", f"--work={tmp_path}", f"--results={results}")
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((results / "stack.json").read_text())
    assert all(row["kvstore"]["rounds"] for row in found["figures"])
    assert [path.name for path in tmp_path.iterdir()] == ["results"]


def test_a_program_to_compare_with_must_be_there() -> None:
    done = bench("--quick", "api-server", "--program", "etcd=/nowhere/etcd")
    assert done.returncode == 2
    assert (
        "etcd=/nowhere/etcd: not one of kube-apiserver, etcd, kube-scheduler and its file"
        in done.stderr
    )


@pytest.mark.parametrize(
    ("size", "said"),
    [
        ("objects=0", "objects=0: not NAME=COUNT with a count above 0"),
        ("objects", "objects: not NAME=COUNT with a count above 0"),
        (
            "subjects=5",
            "unknown size subjects; there are entries, many-pods, mib, nodes, objects, pods,"
            " watchers",
        ),
    ],
)
def test_bad_sizes_are_refused(size: str, said: str) -> None:
    done = bench("--quick", "kubernetes", "--size", size)
    assert done.returncode == 2
    assert said in done.stderr


def test_unknown_scenario_is_refused() -> None:
    done = bench("keys-2m")
    assert done.returncode == 2
    assert "unknown scenario keys-2m; there are rates, fanout," in done.stderr
