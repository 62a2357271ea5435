"""The filter of system calls, run by a small machine of its own on both architectures."""

import errno
import struct
from pathlib import Path

import pytest

from kvstack.agents.kubelet.runtime.process.shim import seccomp

ALLOWED, KILLED = 0x7FFF0000, 0x80000000
X86_64, AARCH64, I386 = 0xC000003E, 0xC00000B7, 0x40000003
MACHINES = pytest.mark.parametrize(
    ("machine", "architecture"), [("x86_64", X86_64), ("aarch64", AARCH64)]
)
NUMBERS = {
    "x86_64": {"clone": 56, "personality": 135, "socket": 41, "unshare": 272, "mount": 165},
    "aarch64": {"clone": 220, "personality": 92, "socket": 198, "unshare": 97, "mount": 40},
}
HEADERS = {
    "x86_64": Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"),
    "aarch64": Path("/usr/include/asm-generic/unistd.h"),
}


def refused(number: int) -> int:
    return 0x00050000 | number


def decide(program: bytes, architecture: int, number: int, argument: int = 0) -> int:
    """Run a filter as the kernel does; return what it says."""
    seen = struct.pack("<IIQQ", number & 0xFFFFFFFF, architecture, 0, argument)
    word = at = 0
    while True:
        code, if_true, if_false, operand = struct.unpack_from("<HBBI", program, at * 8)
        at += 1
        if code == 0x06:
            return int(operand)
        if code == 0x20:
            (word,) = struct.unpack_from("<I", seen, operand)
            continue
        is_so = {0x15: word == operand, 0x25: word > operand, 0x45: bool(word & operand)}[code]
        at += if_true if is_so else if_false


@MACHINES
def test_what_a_container_may_not_ask_for(machine: str, architecture: int) -> None:
    program = seccomp.program(machine, ())
    calls = NUMBERS[machine]
    for number, argument, wanted in (
        (calls["mount"], 0, refused(errno.EPERM)),
        (calls["unshare"], 0, refused(errno.EPERM)),
        (calls["clone"], 17, ALLOWED),
        (calls["clone"], 0x3D0F00, ALLOWED),  # a thread
        *((calls["clone"], 1 << bit | 17, refused(errno.EPERM)) for bit in (17, *range(25, 31))),
        (435, 0, refused(errno.ENOSYS)),
        (425, 0, refused(errno.EPERM)),
        *((calls["personality"], each, ALLOWED) for each in (0, 8, 0x20000, 0x20008, 0xFFFFFFFF)),
        (calls["personality"], 0x0040000, refused(errno.EPERM)),
        *((calls["socket"], each, ALLOWED) for each in (1, 2, 10, 16, 17)),
        *((calls["socket"], each, refused(errno.EAFNOSUPPORT)) for each in (38, 40)),
        (470, 0, refused(errno.ENOSYS)),
        (-1, 0, refused(errno.ENOSYS)),
        (0x40000000, 0, refused(errno.ENOSYS)),  # by the interface x32
        (439, 0, ALLOWED),
    ):
        assert decide(program, architecture, number, argument) == wanted, (number, argument)
    for other in {X86_64, AARCH64, I386} - {architecture}:
        assert decide(program, other, 0) == KILLED


@MACHINES
def test_capabilities_let_calls_through(machine: str, architecture: int) -> None:
    calls = NUMBERS[machine]
    program = seccomp.program(machine, ("SYS_ADMIN",))
    for number in (calls["mount"], calls["unshare"], 435):
        assert decide(program, architecture, number) == ALLOWED
    assert decide(program, architecture, calls["clone"], 0x10000000) == ALLOWED
    assert decide(program, architecture, 425) == refused(errno.EPERM)
    bpf = {"x86_64": 321, "aarch64": 280}[machine]
    for capability in ("BPF", "SYS_ADMIN"):
        given = seccomp.program(machine, (capability,))
        assert decide(given, architecture, bpf) == ALLOWED
    assert decide(seccomp.program(machine, ("SYS_TIME",)), architecture, bpf) != ALLOWED


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_numbers_are_the_kernels(machine: str) -> None:
    """As far as the headers of this machine know them."""
    header = HEADERS[machine]
    if not header.exists():
        pytest.skip(f"{header} is not installed")
    known: dict[str, int] = {}
    for line in header.read_text().splitlines():
        words = line.split()
        if len(words) == 3 and words[0] == "#define" and words[2].isdecimal():
            known[words[1].rpartition("_NR_")[2].removeprefix("_NR3264_")] = int(words[2])
    number = 1 if machine == "x86_64" else 2
    for row in seccomp.REFUSED:
        if row[0] in known:
            assert row[number] == known[row[0]], row
    for name, wanted in NUMBERS[machine].items():
        assert known.get(name, wanted) == wanted
