"""What shims run, as written and read, and found again by a later kubelet."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from kvstack.agents.kubelet.runtime.process.shim.launch_spec import (
    VERSION,
    CommandSpec,
    LaunchSpec,
    MountSpec,
    SpecError,
    decode_command,
    decode_launch,
    encode_command,
    encode_launch,
)
from kvstack.component.errors import ConfigError
from tests.agents.kubelet.runtime.conformance.runtimes import opened, own_uid
from tests.agents.kubelet.runtime.conformance.test_runtimes import World, command

DEVICE = MountSpec("/dev/fuse", "/dev/fuse", True, "None", device=(0o020000, 2789))
SPEC = LaunchSpec(
    argv=("sleep", "1"),
    environment={"A": "1"},
    directory="/tmp",
    mounts=(DEVICE, MountSpec("/a", "/b", False, "HostToContainer", idmap=True, below=True)),
    root="/image",
    scratch="/layer",
    log="/log",
    user="somebody:7",
    groups=(1, 2),
    image_groups=True,
    is_privileged=False,
    capabilities=("CHOWN",),
    no_new_privileges=True,
    filters_calls=True,
    read_only_root=True,
    tty=False,
    stdin=True,
    stdin_once=True,
    is_first=True,
    hostname="web",
    host_pids=False,
    shm="/shm",
    user_namespace=9,
    first_id=1 << 17,
    hidden=("/root",),
    pid_of=12,
    pauses=False,
    namespaces=((5, 1 << 30), (6, 1 << 27)),
    cgroup_path="kubepods/pod1/web-0",
    cgroup_files=("/sys/fs/cgroup/kubepods/pod1/web-0/cgroup.procs",),
    cgroup_view={"": "/sys/fs/cgroup/kubepods/pod1/web-0"},
    limits_devices=True,
    oom_score=1000,
    stop_signal="SIGTERM",
    falls_back_to_logs=True,
    descriptors=1024,
)


def unversioned(spec: LaunchSpec) -> dict[str, Any]:
    """Return a specification as the first kubelets wrote it."""
    values: dict[str, Any] = json.loads(encode_launch(spec))
    for name in ("version", "cgroup_view", "limits_devices", "user_namespace"):
        del values[name]
    del values["first_id"], values["hidden"]
    values["cgroup"], values["cgroups"] = values.pop("cgroup_path"), values.pop("cgroup_files")
    for mount in values["mounts"]:
        del mount["idmap"], mount["device"]
    return values


def test_what_is_written_is_read() -> None:
    assert decode_launch(encode_launch(SPEC)) == SPEC
    everything = SPEC._replace(capabilities=None, hidden=None)
    assert decode_launch(encode_launch(everything)) == everything


def test_files_without_a_version_are_read() -> None:
    found = decode_launch(json.dumps(unversioned(SPEC)))
    mounts = tuple(each._replace(idmap=False, device=None) for each in SPEC.mounts)
    assert found == SPEC._replace(
        mounts=mounts,
        cgroup_view={},
        limits_devices=False,
        user_namespace=-1,
        first_id=0,
        hidden=None,
    )


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"version": VERSION + 1}, f"version {VERSION + 1} is unknown: this kubelet reads"),
        ({"version": "1"}, "version '1' is unknown"),
        ({"argv": None}, "missing fields: argv"),
        ({"cgroup": ""}, "unknown fields: cgroup"),
        ({"mounts": [{"source": "/"}]}, "missing fields: propagation, read_only, target"),
    ],
)
def test_what_cannot_be_read_is_named(changes: dict[str, Any], text: str) -> None:
    values = {**json.loads(encode_launch(SPEC)), **changes}
    kept = {key: value for key, value in values.items() if value is not None or key == "hidden"}
    with pytest.raises(SpecError, match=text):
        decode_launch(json.dumps(kept))


@pytest.mark.parametrize(("text", "problem"), [("[]", "an object is needed"), ("{", "no JSON")])
def test_what_is_no_specification(text: str, problem: str) -> None:
    with pytest.raises(SpecError, match=problem):
        decode_launch(text)


def test_a_command_runs_beside_the_first_process() -> None:
    own = CommandSpec(("sh",), tty=True, environment={"TERM": "xterm"})
    assert decode_command(json.loads(json.dumps(encode_command(own)))) == own
    found = SPEC.for_command(own)
    assert (found.argv, found.tty, found.environment) == (own.argv, True, own.environment)
    assert not found.is_first
    assert found._replace(argv=SPEC.argv, tty=False, environment={"A": "1"}, is_first=True) == SPEC
    with pytest.raises(SpecError, match="missing fields: environment"):
        decode_command({"argv": ["sh"], "tty": False})


async def _open(directory: Path) -> None:
    async with opened("process", directory):
        pass


async def _start(directory: Path) -> None:
    async with opened("process", directory) as runtime:
        world = World("process", runtime, directory)
        await world.start(world.sandbox("old"), "sleep 1000")


async def _use(directory: Path) -> None:
    """Use what an older kubelet started, and end it."""
    async with opened("process", directory) as runtime:
        world = World("process", runtime, directory)
        world.sandbox("old")
        try:
            (found,) = runtime.of_pod(own_uid("old"))
            assert found.is_running
            assert (await command(world, found, "hostname"))[0] == b"host-old\n"
            await runtime.stop(found.id, 0)
            assert found.exit_code == 137
        finally:
            await world.clean()


@pytest.mark.slow
def test_a_container_of_an_older_kubelet_is_found_again(tmp_path: Path) -> None:
    file = tmp_path / "pods" / own_uid("old") / "containers" / "c" / "0" / "launch.json"

    async def run() -> None:  # in one loop, which knows the shim as its child
        await _start(tmp_path)
        written = file.read_text()
        try:
            file.write_text(json.dumps({**json.loads(written), "version": VERSION + 1}))
            with pytest.raises(ConfigError, match=rf"{file}: version {VERSION + 1} is unknown"):
                await _open(tmp_path)
            file.write_text(json.dumps(unversioned(decode_launch(written))))
        finally:
            await _use(tmp_path)

    asyncio.run(run())
