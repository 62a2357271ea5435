"""`kvstack doctor`: what it says of a machine, and when `kvstack up` would not work there."""

import json
import os
import socket
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from kvstack.agents.kubelet.runtime.process.features import CONSEQUENCES, Features
from kvstack.agents.standalone.doctor import data_and_ports, machine, pods
from kvstack.agents.standalone.doctor.command import main
from kvstack.agents.standalone.doctor.findings import Finding, Level, as_text, has_error, short
from kvstore import embed
from tests.support.network.ports import free_ports

Examined = Callable[..., tuple[int, dict[str, dict[str, Any]]]]


@pytest.fixture
def examined(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Examined:
    """Returns the exit code and the findings by subject, with a port that is free."""

    def examine(*flags: str) -> tuple[int, dict[str, dict[str, Any]]]:
        given = {"data-dir": str(tmp_path / "data"), "secure-port": str(free_ports(1)[0])}
        given |= dict(each.split("=") for each in flags)
        code = main(["-o", "json", *(f"--{name}={value}" for name, value in given.items())])
        return code, {each["subject"]: each for each in json.loads(capsys.readouterr().out)}

    return examine


def test_a_machine_on_which_it_would_work(examined: Examined, tmp_path: Path) -> None:
    code, found = examined()
    assert code == 0, found
    assert {"system", "python", "transport", "descriptors", "clock", "port"} <= found.keys()
    assert "to be made in" in found["data directory"]["found"]
    assert found["fdatasync"]["found"].split()[1] == "µs"
    assert list(tmp_path.iterdir()) == [], "it leaves nothing behind"


def test_a_port_that_somebody_has(examined: Examined) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        code, found = examined(f"secure-port={port}")
    assert code == 1
    assert found["port"]["level"] == "error"
    assert found["port"]["found"] == f"127.0.0.1:{port}"
    assert found["port"]["consequence"] == "cannot listen: address already in use"


def test_a_data_directory_that_is_a_file(examined: Examined, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    code, found = examined(f"data-dir={file}")
    assert code == 1
    assert found["data directory"]["consequence"] == f"{file} is not a directory"


def test_a_machine_that_enforces_no_policies() -> None:
    assert pods.network_policies("") == Finding("network policies", "yes, by nftables")
    found = pods.network_policies("the program nft is not installed")
    assert found.level is Level.LIMITED
    assert found.found == "no: the program nft is not installed"
    assert found.consequence == "NetworkPolicies are stored, and not enforced"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_data_directory_that_cannot_be_written(examined: Examined, tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    code, found = examined()
    assert code == 1
    assert found["data directory"]["consequence"] == f"{tmp_path} is not writable"


def test_a_data_directory_that_others_may_read(examined: Examined, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir(mode=0o755)
    code, found = examined()
    assert code == 0
    assert found["data directory"]["level"] == "limited"
    assert found["data directory"]["consequence"].endswith(f"chmod 700 {tmp_path / 'data'}")


def test_a_relative_data_directory_that_is_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    path = Path("default.etcd")
    assert data_and_ports.data_directory(path)[0].found == f"{path} (to be made in {tmp_path})"
    path.mkdir(mode=0o700)
    assert data_and_ports.data_directory(path)[0].found == str(path)
    path.chmod(0o755)
    first = data_and_ports.data_directory(path)[0]
    assert (first.level, first.found) == (Level.LIMITED, f"{path}, mode 0755")


def test_a_data_directory_in_use_is_reported_and_not_disturbed(
    examined: Examined, tmp_path: Path
) -> None:
    with embed.start(tmp_path / "data", client_urls=()):
        code, found = examined()
    assert code == 0
    assert found["data directory"]["found"].endswith(f"in use by process {os.getpid()}")
    assert data_and_ports.owner_of(tmp_path / "data") == 0, "it has ended"


def test_a_clock_behind_the_certificates(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(machine, "_newest_certificate_s", lambda _pki: 1e11)
    found = machine.clock(tmp_path)
    assert found.level is Level.ERROR
    assert str(tmp_path) in found.consequence


def test_flags_that_kvstack_up_would_not_take(capsys: pytest.CaptureFixture[str]) -> None:
    for flags, text in (
        (["--output", "xml"], "--output xml: one of text, json"),
        (["-o"], "flag needs an argument: -o"),
        (["--nodes", "-1"], "--nodes"),
        (["--no-such-flag"], "no-such-flag"),
    ):
        assert main(flags) == 2
        assert text in capsys.readouterr().err


def test_what_pods_lack_is_said() -> None:
    found = {each.subject: each for each in pods.of_features(Features())}
    assert found["cgroups"].consequence.startswith("pods have no limits of memory and CPU")
    assert {each.level for name, each in found.items() if name != "cgroups"} == {Level.OK}
    lacking = pods.of_features(Features(cgroups="v2", nft="not installed", seccomp="not known"))
    limited = {each.subject: each.found for each in lacking if each.level is Level.LIMITED}
    assert limited == {"nft": "no: not installed", "seccomp": "no: not known"}
    assert set(CONSEQUENCES) | {"cgroups"} == {each.name for each in fields(Features)}


def test_findings_as_people_and_the_log_read_them() -> None:
    findings = [
        Finding("python", "CPython 3.11.2"),
        Finding("clock", "12:00, not synchronized", Level.LIMITED, "clocks must agree"),
    ]
    assert as_text(findings) == (
        "ok       python  CPython 3.11.2\n"
        "limited  clock   12:00, not synchronized\n"
        "                 clocks must agree\n"
    )
    assert short(findings) == {"clock": "clocks must agree"}
    assert not has_error(findings)
    assert has_error([*findings, Finding("port", "x", Level.ERROR)])
