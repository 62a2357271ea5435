"""How the conformance tests are run: nothing that was asked for goes without a result."""

import hashlib
import io
import json
import os
import signal
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.conformance.kubernetes import requirements
from tests.conformance.kubernetes.__main__ import main
from tests.conformance.kubernetes.engine import write_archive
from tests.conformance.kubernetes.suite import (
    LOST,
    PASSED,
    ConformanceTest,
    Program,
    Result,
    Suite,
    table,
)
from tests.support.waiting import wait_for

ALL = {
    "[sig-apps] one passes [Conformance]": "passed",
    "[sig-apps] one fails [Conformance]": "failed",
    "[sig-apps] one that the program forgets once [Conformance]": "late",
    "[sig-apps] one that the program never comes to [Conformance]": "never",
    "[sig-node] one is serial [Serial] [Conformance]": "passed",
    "[sig-node] one is slow [Slow] [Conformance]": "passed",
}
OTHERS = {
    "[sig-network] a rule [Feature:NetworkPolicy]": "passed",
    "[sig-network] a rule [Feature:SCTPConnectivity] [Feature:NetworkPolicy]": "failed",
}
"""Tests of the program that conformance does not ask for."""
STAND_IN = """#!{python}
import json, re, sys
flags = [each.lstrip("-").partition("=")[::2] for each in sys.argv[1:]]
one = dict(flags)
if "list-images" in one:
    print("registry.k8s.io/pause:3.10.2\\ninvalid.registry.k8s.io/invalid/alpine:3.1\\nx/nfs:1")
    sys.exit()
wanted = [value for name, value in flags if name == "ginkgo.focus"]
specs = []
for name, state in {all}.items():
    group, _, text = name.partition(" ")
    spec = dict(ContainerHierarchyTexts=[group], LeafNodeText=text, LeafNodeType="It",
                State="skipped", RunTime=2_000_000_000)
    if any(re.search(each, name) for each in wanted):
        spec["State"] = "passed" if "ginkgo.dry-run" in one else state
        if state == "late":
            spec["State"] = "passed" if len(wanted) == 1 else "skipped"
        if state == "never" and "ginkgo.dry-run" not in one:
            spec["State"] = "skipped"
        if state == "failed":
            spec["Failure"] = dict(Message="it is not so\\nmore")
    specs.append(spec)
if "ginkgo.dry-run" in one:
    other = dict(LeafNodeType="It", ContainerHierarchyTexts=None, LeafNodeText="x")
    specs.append(other)
    for each in specs:
        is_meant = any(re.search(it, each["LeafNodeText"]) for it in wanted)
        each["State"] = "passed" if is_meant else "skipped"
json.dump([dict(SpecReports=specs), dict(SpecReports=None)], open(one["ginkgo.json-report"], "w"))
print("log", one["ginkgo.json-report"], "kubeconfig" in one)
"""


@pytest.fixture
def program(tmp_path: Path) -> Program:
    file = tmp_path / "e2e.test"
    file.write_text(
        STAND_IN.replace("{python}", sys.executable).replace("{all}", repr(ALL | OTHERS))
    )
    file.chmod(0o755)
    return Program(file, Path("kubectl"), Path("admin.conf"))


def test_every_test_has_a_result(program: Program, tmp_path: Path) -> None:
    suite = Suite(program, tmp_path / "reports")
    tests = suite.tests()
    assert [each.name for each in tests] == list(ALL)
    assert [each.is_serial for each in tests] == [False] * 4 + [True, False]
    results = suite.run(tests, processes=2)
    states = [results[each.name].state for each in tests]
    assert states == [PASSED, "failed", PASSED, LOST, PASSED, PASSED]
    assert results[tests[0].name].seconds == 2.0
    assert all("log" in each.log.read_text() for each in results.values())


def test_only_some_are_run(program: Program, tmp_path: Path) -> None:
    suite = Suite(program, tmp_path / "reports")
    assert [each.name for each in suite.tests(r"\[sig-node\] one is s.o")] == [list(ALL)[5]]
    assert suite.tests("nothing") == []


def test_every_run_has_to_pass(
    program: Program, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = [str(program.file), "--kubeconfig=admin.conf", "--kubectl=kubectl"]
    reports = tmp_path / "reports"
    flags = [*cluster, f"--reports={reports}", "--runs=2"]
    assert main([*flags, "--match=one passes|one is slow"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [each for each in lines if each.startswith(("run", "all"))] == [
        "run 1:",
        "all                      2 of 2 passed",
        "run 2:",
        "all                      2 of 2 passed",
    ]
    assert {each.name for each in reports.iterdir() if each.is_dir()} == {"run-1", "run-2"}
    assert main([*flags, "--match=one passes|one fails"]) == 1


def test_an_interrupt_ends_the_program_of_the_tests(program: Program, tmp_path: Path) -> None:
    script = program.file.read_text()
    pid_file = tmp_path / "pid"
    block = f"""if "ginkgo.dry-run" not in one:
    import os, pathlib, signal
    pathlib.Path({str(pid_file)!r} + ".new").write_text(str(os.getpid()))
    os.rename({str(pid_file)!r} + ".new", {str(pid_file)!r})
    signal.pause()
wanted ="""
    program.file.write_text(script.replace("wanted =", block, 1))
    command = [sys.executable, "-m", "tests.conformance.kubernetes", str(program.file)]
    flags = ["--kubeconfig=admin.conf", "--kubectl=kubectl", f"--reports={tmp_path / 'reports'}"]
    process = subprocess.Popen([*command, *flags], stderr=subprocess.PIPE, start_new_session=True)
    try:
        wait_for(pid_file.exists, timeout_s=60)
        process.send_signal(signal.SIGINT)
        _, log = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert b"KeyboardInterrupt" in log
    assert not Path(f"/proc/{pid_file.read_text()}").exists()


def test_others_than_those_of_conformance_are_run(program: Program, tmp_path: Path) -> None:
    suite = Suite(program, tmp_path / "reports")
    tests = suite.tests(focus="Feature:NetworkPolicy")
    assert [each.name for each in tests] == list(OTHERS)
    results = suite.run(tests, processes=1)
    assert [results[each.name].state for each in tests] == [PASSED, "failed"]
    assert suite.tests("^(?!.*SCTP)", "Feature:NetworkPolicy") == tests[:1]


@pytest.mark.parametrize("kernel", ["without SCTP", "with SCTP"])
def test_a_kernel_without_a_protocol_is_named(kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    has = kernel == "with SCTP"
    monkeypatch.setattr(requirements, "_has_sctp", lambda: has)
    tests = [ConformanceTest(each, is_serial=False) for each in OTHERS]
    assert requirements.missing_protocols(tests[:1]) == []
    found = requirements.missing_protocols(tests)
    assert [each.partition(" ")[0] for each in found] == ([] if has else ["SCTP"])


def test_what_the_engine_is_too_old_for_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    containerd = tmp_path / "containerd"
    containerd.write_text("#!/bin/sh\necho containerd example.org/containerd 1.6.20~ds1 1.6.20-1\n")
    containerd.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    version = requirements.engine_version()
    names = ("[sig-node] Pods run", "[sig-node] ImageVolume runs", "[sig-node] ImageVolume subPath")
    tests = [ConformanceTest(each, is_serial=False) for each in names]
    beyond = requirements.beyond_engine(tests, version)
    assert [each.partition(":")[0] for each in beyond] == list(names[1:])
    assert all("containerd 2.1 or later: the node has 1.6.20~ds1" in each for each in beyond)
    assert [each.partition(":")[0] for each in requirements.beyond_engine(tests, "v2.1.4")] == [
        names[2]
    ]
    assert requirements.beyond_engine(tests, "2.4.2+unknown") == []


def test_a_program_that_lists_nothing_is_an_error(tmp_path: Path) -> None:
    suite = Suite(Program(Path("/bin/false"), Path(), Path()), tmp_path / "reports")
    with pytest.raises(RuntimeError, match=r"lists no tests \(exit code 1\)"):
        suite.tests()


def test_the_table_names_what_did_not_pass(program: Program, tmp_path: Path) -> None:
    tests = Suite(program, tmp_path).tests("one passes|one fails")
    results = {
        tests[0].name: Result(PASSED, 1.0, "", tmp_path),
        tests[1].name: Result("failed", 1.0, "it is not so\nmore", tmp_path / "1.log"),
    }
    assert table(tests, results) == [
        "sig-apps                 1 of 2 passed",
        "all                      1 of 2 passed",
        f"failed: {tests[1].name}: it is not so ({tmp_path / '1.log'})",
    ]


def test_what_is_missing_is_named(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = tmp_path / "images"
    images.mkdir()
    (missing,) = requirements.missing_images(program, images)
    assert missing.startswith("registry.k8s.io/pause:3.10.2: ")
    (images / "registry.k8s.io%2Fpause:3.10.2.tar").touch()
    assert requirements.missing_images(program, images) == []
    monkeypatch.setenv("PATH", str(tmp_path))
    found = requirements.missing_programs(program._replace(file=tmp_path / "none"))
    assert [each.partition(":")[0] for each in found][:4] == [
        "ip", "nft", "conntrack", str(tmp_path / "none"),
    ]  # fmt: skip
    found = requirements.missing_programs(program, with_engine=True)
    assert {"containerd", "ctr", "runc"} <= {each.partition(":")[0] for each in found}


def test_a_directory_becomes_an_archive_that_engines_take(tmp_path: Path) -> None:
    image = tmp_path / "image"
    (image / "rootfs" / "bin").mkdir(parents=True)
    (image / "rootfs" / "bin" / "pause").write_text("x")
    (image / "config.json").write_text('{"Entrypoint": ["/bin/pause"]}')
    archive = tmp_path / "image.tar"
    write_archive("registry.k8s.io/pause:3.10.2", image, archive)
    with tarfile.open(archive) as tar:
        (manifest,) = json.loads(read(tar, "manifest.json"))
        assert manifest["RepoTags"] == ["registry.k8s.io/pause:3.10.2"]
        config = json.loads(read(tar, manifest["Config"]))
        layer = read(tar, manifest["Layers"][0])
    assert config["config"] == {"Entrypoint": ["/bin/pause"]}
    digest = hashlib.sha256(layer).hexdigest()
    assert config["rootfs"]["diff_ids"] == [f"sha256:{digest}"]
    with tarfile.open(fileobj=io.BytesIO(layer)) as tar:
        assert read(tar, "./bin/pause") == b"x"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["image", "image.tar"]


def read(tar: tarfile.TarFile, name: str) -> bytes:
    file = tar.extractfile(name)
    assert file is not None
    return file.read()
