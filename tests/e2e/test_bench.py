"""The benchmarks run: small sizes, every step, a page in the end. Their numbers mean nothing."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from bench.loads import h2, kvload
from kvstore.transport import native
from tests.support.documented import words

ROOT = Path(__file__).parents[2]
BENCH_S = 840.0  # a busy machine took 93 s for `stack`

pytestmark = pytest.mark.timeout(900)


def bench(
    *arguments: str, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bench", *arguments],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=BENCH_S,
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
def test_the_rows_that_matter_are_measured_without_load_generators(tmp_path: Path) -> None:
    results, nothing_there = tmp_path / "results", tmp_path / "empty"
    nothing_there.mkdir()
    done = bench(
        "quick",
        "--quick",
        f"--work={tmp_path}",
        f"--results={results}",
        env={**os.environ, "PATH": str(nothing_there), "HOME": str(nothing_there)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((results / "quick.json").read_text())
    rates = [row for row in found["figures"] if row["unit"].endswith("s/s")]
    assert len(rates) == 10
    assert all(row[each]["median"] > 0 for row in rates for each in BESIDE_ETCD)
    assert all("(load from Python)" in row["measure"] for row in rates)
    page = (results / "README.md").read_text()
    assert "- Missing: h2load is not installed; get it with: apt-get install" in page
    assert "- Missing: kvload needs a Rust toolchain (cargo), and there is none." in page
    assert "![Every row: ours over etcd's](quick.svg)" in page
    assert "put, 1x1 (load from Python)</text>" in (results / "quick.svg").read_text()


def no_loads() -> str:
    return h2.missing() or ""


def no_kvload() -> str:
    return no_loads() or kvload.missing() or ""


def no_crate() -> str:
    return no_loads() or ("" if native.is_available() else "the crate was not built")


def nothing() -> str:
    return ""


BESIDE_ETCD = ("kvstore", "etcd")
ALONE = ("kvstore",)
SCENARIOS = [
    ("quick", no_kvload, BESIDE_ETCD),
    ("cluster-rates", no_loads, BESIDE_ETCD),
    ("cluster-fanout", no_kvload, BESIDE_ETCD),
    ("catch-up", no_kvload, BESIDE_ETCD),
    ("snapshot", no_kvload, BESIDE_ETCD),
    ("slow-link", no_kvload, BESIDE_ETCD),
    ("security", no_kvload, BESIDE_ETCD),
    ("kubernetes", no_kvload, BESIDE_ETCD),
    ("clients", no_crate, ALONE),
    ("embedded", no_crate, ALONE),
    ("http", no_crate, ALONE),
    ("api-server", no_kvload, ALONE),
    ("api-pods", no_kvload, ALONE),
    ("stack", nothing, ALONE),
    ("churn", nothing, ALONE),
    ("forks", nothing, ALONE),
]
AT_EVERY_COMMIT = {"cluster-rates", "clients", "stack"}
"""One of each kind that does without kvload, which takes a minute to build."""


@pytest.mark.e2e
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "missing", "contenders"),
    [
        pytest.param(*row, id=row[0], marks=() if row[0] in AT_EVERY_COMMIT else pytest.mark.long)
        for row in SCENARIOS
    ],
)
def test_a_scenario_is_measured(
    name: str, missing: Callable[[], str], contenders: tuple[str, ...], tmp_path: Path
) -> None:
    if why := missing():
        pytest.skip(why)
    results = tmp_path / "results"
    done = bench("--quick", name, f"--work={tmp_path}", f"--results={results}")
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((results / f"{name}.json").read_text())
    assert all(row[each]["rounds"] for row in found["figures"] for each in contenders)
    if name.startswith("api-"):
        assert "No kube-apiserver and etcd were given" in (results / "README.md").read_text()
    if name == "stack":
        needed = "kube-apiserver, etcd, kube-scheduler, kube-controller-manager"
        assert f"Not all of {needed} were given" in (results / "README.md").read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["results"]


def test_a_program_to_compare_with_must_be_there() -> None:
    command = 'make bench ARGS="quick --program etcd=/usr/local/bin/etcd"'
    _, flags = words(command, {"/usr/local/bin/etcd": "/nowhere/etcd"})
    done = bench("--quick", *flags.removeprefix("ARGS=").split())
    assert done.returncode == 2
    assert (
        "etcd=/nowhere/etcd: not one of kube-apiserver, etcd, kube-scheduler,"
        " kube-controller-manager, coredns and its file" in done.stderr
    )


@pytest.mark.parametrize(
    ("size", "said"),
    [
        ("objects=0", "objects=0: not NAME=COUNT with a count above 0"),
        ("objects", "objects: not NAME=COUNT with a count above 0"),
        (
            "subjects=5",
            "unknown size subjects; there are entries, many-pods, mib, nodes, objects, pods,"
            " services, watchers",
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
