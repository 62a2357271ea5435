"""Mounts that a container makes: its node sees those of mountPropagation Bidirectional alone."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvstack.agents.kubelet.disk.mount_table import points_below, take_away
from kvstack.agents.kubelet.runtime.runtime import Mount, Security, StartError
from tests.agents.kubelet.runtime.conformance.runtimes import require
from tests.agents.kubelet.runtime.conformance.test_runtimes import World, log, run
from tests.agents.support.cluster import eventually

pytestmark = pytest.mark.slow

PRIVILEGED = Security(user=0, is_privileged=True)
MOUNTS = "mkdir -p /shared/in && mount -t tmpfs tmpfs /shared/in && echo x > /shared/in/file"
WAITS = "while ! [ -e /shared/in/file ]; do sleep 0.1; done; cat /shared/in/file"


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[Path]:
    """Give a directory that is a mount of its own, which passes on what is mounted below."""
    require("process")
    directory = tmp_path / "shared"
    directory.mkdir()
    subprocess.run(["mount", "--bind", directory, directory], check=True)
    subprocess.run(["mount", "--make-shared", directory], check=True)
    yield directory
    take_away(directory)


def test_what_a_container_mounts_is_seen_by_its_node_and_by_others(
    shared: Path, tmp_path: Path
) -> None:
    async def story(world: World) -> None:
        below = Mount(str(shared), "/shared", propagation="HostToContainer")
        reader = await world.start(
            world.sandbox("reader"), WAITS, mounts=[below], security=PRIVILEGED
        )
        both = Mount(str(shared), "/shared", propagation="Bidirectional")
        maker = await world.start(
            world.sandbox("maker"), MOUNTS, mounts=[both], security=PRIVILEGED
        )
        assert (await world.ended(maker)).exit_code == 0, log(maker)
        # It outlives the container, as kubelet's volumes of drivers do.
        assert points_below(shared) == [str(shared / "in"), str(shared)]
        assert (shared / "in" / "file").read_text() == "x\n"
        await world.ended(reader)
        await eventually(lambda: log(reader) == ["x"])

    run(("process", tmp_path / "node"), story)


def test_what_a_container_mounts_privately_is_seen_by_nobody(shared: Path, tmp_path: Path) -> None:
    async def story(world: World) -> None:
        for propagation in ("None", "HostToContainer"):
            mount = Mount(str(shared), "/shared", propagation=propagation)
            maker = await world.start(
                world.sandbox(propagation.lower()), MOUNTS, mounts=[mount], security=PRIVILEGED
            )
            assert (await world.ended(maker)).exit_code == 0, log(maker)
            assert points_below(shared) == [str(shared)]

    run(("process", tmp_path / "node"), story)


def test_a_mount_that_passes_nothing_on_is_reported(shared: Path, tmp_path: Path) -> None:
    async def story(world: World) -> None:
        both = Mount(str(shared), "/shared", propagation="Bidirectional")
        with pytest.raises(StartError, match="is on a mount that is not shared"):
            await world.start(world.sandbox("maker"), MOUNTS, mounts=[both], security=PRIVILEGED)

    subprocess.run(["mount", "--make-private", shared], check=True)
    run(("process", tmp_path / "node"), story)
