"""Rules about devices as a BPF program that runs when a device is opened or created.

    descriptor = load(instructions(rules))
    attach(descriptor, "/sys/fs/cgroup/kubepods/pod1/c")

The kernel gives it what is wanted (kind in the lower, access in the upper 16 bits), the major and
the minor number; it returns 1 where a rule allows all of that, else 0. It applies to the processes
of the group and of all groups below, which can only be stricter; it goes with the group.

An instruction is 8 bytes: code, registers (source in the upper 4 bits), offset, constant.
"""

import ctypes
import errno
import os
import struct
from collections.abc import Iterable
from typing import Final

from kvstack.agents.kubelet.runtime.process.devices.rules import ANY, BLOCK, CHARACTER, Rule
from kvstack.agents.kubelet.runtime.process.shim import syscalls

_KINDS: Final = {BLOCK: 1, CHARACTER: 2}
_ACCESS: Final = {"m": 1, "r": 2, "w": 4}
_ACCESS_ALL: Final = 7

_LOAD, _SET, _COPY, _AND, _SHIFT_RIGHT, _JUMP_UNEQUAL, _EXIT = (
    *(0x61, 0xB7, 0xBF, 0x57, 0x77, 0x55, 0x95),
)
_RESULT, _GIVEN, _KIND, _WANTED, _MAJOR, _MINOR = 0, 1, 2, 3, 4, 5
"""Registers. That of what is given is free once it has been read."""
_LICENSE: Final = b"Apache-2.0\0"
_PROGRAM_LOAD, _ATTACH, _DETACH = 5, 8, 9
_CGROUP_DEVICE_PROGRAM: Final = 15
_CGROUP_DEVICE_HOOK: Final = 6
_ALLOW_MULTIPLE: Final = 2


def instructions(rules: Iterable[Rule]) -> bytes:
    """Return the program."""
    out = [
        _instruction(_LOAD, _KIND, _GIVEN, offset=0),
        _instruction(_COPY, _WANTED, _KIND),
        _instruction(_AND, _KIND, constant=0xFFFF),
        _instruction(_SHIFT_RIGHT, _WANTED, constant=16),
        _instruction(_LOAD, _MAJOR, _GIVEN, offset=4),
        _instruction(_LOAD, _MINOR, _GIVEN, offset=8),
    ]
    for rule in rules:
        out += _allowing(rule)
    return b"".join([*out, *_returning(0)])


def _allowing(rule: Rule) -> list[bytes]:
    """Return what returns 1 where a rule applies, and goes on after itself where it does not."""
    refused = _ACCESS_ALL & ~sum(_ACCESS[each] for each in rule.access)
    tests = [(_KIND, _KINDS[rule.kind])]
    tests += [(_MAJOR, rule.major)] if rule.major != ANY else []
    tests += [(_MINOR, rule.minor)] if rule.minor != ANY else []
    tests += [(_GIVEN, 0)] if refused else []
    out = _returning(1)
    for register, wanted in reversed(tests):
        out.insert(0, _instruction(_JUMP_UNEQUAL, register, offset=len(out), constant=wanted))
    if refused:
        masking = [_instruction(_COPY, _GIVEN, _WANTED), _instruction(_AND, _GIVEN, 0, 0, refused)]
        return [*masking, *out]
    return out


def _returning(value: int) -> list[bytes]:
    return [_instruction(_SET, _RESULT, constant=value), _instruction(_EXIT)]


def _instruction(
    code: int, target: int = 0, source: int = 0, offset: int = 0, constant: int = 0
) -> bytes:
    return struct.pack("<BBhi", code, target | source << 4, offset, constant)


def load(program: bytes) -> int:
    """Give a program to the kernel; return its descriptor; OSError."""
    buffer = ctypes.create_string_buffer(program, len(program))
    license_text = ctypes.create_string_buffer(_LICENSE)
    # Type, number of instructions, where they are, license, log (none), version of the kernel.
    attributes = struct.pack(
        "=IIQQIIQI",
        _CGROUP_DEVICE_PROGRAM,
        len(program) // 8,
        ctypes.addressof(buffer),
        ctypes.addressof(license_text),
        *(0, 0, 0, 0),
    )
    return syscalls.bpf(_PROGRAM_LOAD, attributes)


def attach(program: int, directory: str) -> None:
    """Attach a program to a control group of version 2; OSError."""
    group = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # The group of a container whose start failed has it already.
        try:
            syscalls.bpf(_DETACH, struct.pack("=IIII", group, program, _CGROUP_DEVICE_HOOK, 0))
        except OSError as error:
            if error.errno != errno.ENOENT:
                raise
        flags = _ALLOW_MULTIPLE
        syscalls.bpf(_ATTACH, struct.pack("=IIII", group, program, _CGROUP_DEVICE_HOOK, flags))
    finally:
        os.close(group)
