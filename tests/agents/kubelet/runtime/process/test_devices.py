"""Rules about devices: as text, and as a program, which is run here as the kernel runs it."""

import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from kvstack.agents.kubelet.runtime.process.devices import program
from kvstack.agents.kubelet.runtime.process.devices.groups import (
    CONTROLLER,
    PROGRAM,
    DeviceGroups,
)
from kvstack.agents.kubelet.runtime.process.devices.rules import (
    ANY,
    BLOCK,
    CHARACTER,
    DEFAULT,
    Rule,
    rule_of,
)

_ACCESS = {"m": 1, "r": 2, "w": 4}
_KIND = {BLOCK: 1, CHARACTER: 2}


def run(code: bytes, given: tuple[int, int, int]) -> int:
    """Run a program; given: kind and access, major, minor, as the kernel lays them out."""
    memory = struct.pack("=III", *given)
    registers = [0] * 11
    at = 0
    while True:
        operation, names, offset, constant = struct.unpack_from("<BBhi", code, at * 8)
        target, source = names & 15, names >> 4
        at += 1
        match operation:
            case 0x61:  # load a word of what is given, which register 1 points to
                assert source == 1
                registers[target] = struct.unpack_from("=I", memory, offset)[0]
            case 0xB7:
                registers[target] = constant
            case 0xBF:
                registers[target] = registers[source]
            case 0x57:
                registers[target] &= constant
            case 0x77:
                registers[target] >>= constant
            case 0x55:
                at += offset if registers[target] != constant else 0
            case 0x95:
                return registers[0]
            case _:
                pytest.fail(f"operation {operation:#x}")


def allows(rules: tuple[Rule, ...], kind: str, major: int, minor: int, access: str) -> bool:
    wanted = sum(_ACCESS[each] for each in access)
    return bool(run(program.instructions(rules), (wanted << 16 | _KIND[kind], major, minor)))


@pytest.mark.parametrize(
    ("kind", "major", "minor", "access", "is_allowed"),
    [
        (CHARACTER, 1, 3, "r", True),
        (CHARACTER, 1, 3, "rw", True),
        (CHARACTER, 1, 3, "m", True),
        (CHARACTER, 1, 1, "r", False),
        (CHARACTER, 1, 1, "m", True),
        (CHARACTER, 1, 1, "mr", False),
        (CHARACTER, 1, 11, "w", False),
        (CHARACTER, 5, 0, "rw", True),
        (CHARACTER, 5, 1, "rw", False),
        (CHARACTER, 5, 2, "rw", True),
        (CHARACTER, 136, 0, "rw", True),
        (CHARACTER, 136, 5000, "rw", True),
        (CHARACTER, 10, 200, "rw", False),
        (BLOCK, 1, 3, "r", False),
        (BLOCK, 8, 0, "r", False),
        (BLOCK, 8, 0, "w", False),
        (BLOCK, 8, 0, "m", True),
        (BLOCK, 136, 0, "rw", False),
    ],
)
def test_default_rules(kind: str, major: int, minor: int, access: str, is_allowed: bool) -> None:  # noqa: FBT001
    assert allows(DEFAULT, kind, major, minor, access) is is_allowed


def test_a_device_that_is_given() -> None:
    rules = (*DEFAULT, Rule(BLOCK, 8, 1, "rm"))
    assert allows(rules, BLOCK, 8, 1, "r")
    assert not allows(rules, BLOCK, 8, 1, "rw")
    assert not allows(rules, BLOCK, 8, 2, "r")
    assert not allows((), CHARACTER, 1, 3, "r")
    assert allows((Rule(BLOCK, ANY, 7, "rwm"),), BLOCK, 200, 7, "rwm")


def test_rules_as_the_controller_takes_them() -> None:
    assert [each.line for each in DEFAULT[:3]] == ["c *:* m", "b *:* m", "c 1:3 rwm"]
    assert DEFAULT[-1].line == "c 136:* rwm"


def test_the_rule_of_a_device(tmp_path: Path) -> None:
    assert rule_of("/dev/zero", is_read_only=False) == Rule(CHARACTER, 1, 5, "rwm")
    assert rule_of("/dev/zero", is_read_only=True) == Rule(CHARACTER, 1, 5, "rm")
    assert rule_of(str(tmp_path), is_read_only=False) is None
    assert rule_of(str(tmp_path / "none"), is_read_only=False) is None


def test_a_machine_that_cannot_limit_devices(tmp_path: Path) -> None:
    groups = DeviceGroups(tmp_path)
    groups.probe("kubepods")
    assert groups.way == ""
    assert f"{CONTROLLER}: " in groups.problem
    assert f"{PROGRAM}: " in groups.problem
    assert str(tmp_path / "devices") in groups.problem
    assert not list(tmp_path.iterdir())
    groups.close()


def test_the_controller_gets_the_rules(tmp_path: Path) -> None:
    hierarchy = tmp_path / "devices"
    group = hierarchy / "kubepods" / "pod1"
    group.mkdir(parents=True)
    for place in (hierarchy / "cgroup.procs", group / "devices.deny", group / "devices.allow"):
        place.touch()
    groups = DeviceGroups(tmp_path)
    groups.way = CONTROLLER
    assert groups.limit("kubepods/pod1", DEFAULT) == [str(group / "cgroup.procs")]
    assert (group / "devices.deny").read_text() == "a"
    assert (group / "devices.allow").read_text() == "".join(each.line for each in DEFAULT)


def version_2() -> Path:
    """Return where control groups of version 2 are, or skip the test."""
    for each in (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified")):
        if (each / "cgroup.controllers").exists():
            return each
    pytest.skip("control groups of version 2 are not mounted")


def opening(group: Path, path: str) -> str:
    """Return how a process of a group fares that opens a file to read: an error, or nothing."""
    program = (
        "import os, sys\n"
        "with open(sys.argv[1], 'w') as procs: procs.write('0')\n"
        "try: os.open(sys.argv[2], os.O_RDONLY)\n"
        "except OSError as error: print(error.strerror)\n"
    )
    command = [sys.executable, "-IS", "-c", program, str(group / "cgroup.procs"), path]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_the_kernel_runs_the_program_for_a_group_and_those_below() -> None:
    if os.geteuid() != 0:
        pytest.skip("programs for the kernel need root")
    root = version_2()
    groups = DeviceGroups(root, ways=[PROGRAM])
    name = f"kv-test-{os.getpid()}"
    (root / name).mkdir()
    try:
        groups.probe(name)
        if groups.problem:
            pytest.skip(f"the kernel takes no such program: {groups.problem}")
        group = root / name / "c"
        assert groups.limit(f"{name}/c", DEFAULT) == []  # a container is in its group anyway
        groups.limit(f"{name}/c", DEFAULT)  # again, as after a start that failed
        (group / "below").mkdir()
        for place in (group, group / "below"):
            assert opening(place, "/dev/zero") == ""
            assert opening(place, "/dev/kmsg") == "Operation not permitted"
        assert opening(root / name, "/dev/kmsg") == ""
        (root / name / "given").mkdir()
        groups.limit(f"{name}/given", [Rule(CHARACTER, 1, 11, "r")])
        assert opening(root / name / "given", "/dev/kmsg") == ""
        assert opening(root / name / "given", "/dev/zero") == "Operation not permitted"
    finally:
        groups.close()
        for directory, _, _ in os.walk(root / name, topdown=False):
            os.rmdir(directory)
