"""The runtimes that the suite runs on, each with an image of busybox.

process   the image is a directory of the node's folder
cri       containerd of the machine, with directories of its own; the image is packed and imported
hollow    nothing runs: any image is there by its name
"""

import asyncio
import hashlib
import io
import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ipaddress import IPv4Network
from pathlib import Path

import pytest

from kvstack.agents.kubelet.hollow.hollow_runtime import HollowRuntime
from kvstack.agents.kubelet.runtime.cri.cri_runtime import CriOptions, CriRuntime
from kvstack.agents.kubelet.runtime.process.devices.groups import DeviceGroups
from kvstack.agents.kubelet.runtime.process.images import Images
from kvstack.agents.kubelet.runtime.process.options import AUTOMATIC, ProcessOptions
from kvstack.agents.kubelet.runtime.process.process_runtime import ProcessRuntime
from kvstack.agents.kubelet.runtime.runtime import Runtime
from kvstack.component.clock import SystemClock
from kvstack.component.errors import ConfigError
from tests.support.list_log import ListLog
from tests.support.programs import is_static
from tests.support.waiting import answered

HOLLOW = "hollow"
IMAGE = "localhost/busybox:1"
PAUSE = "localhost/pause:1"
BUSYBOX = Path("/bin/busybox")
CONFIG = {"Cmd": ["/bin/sh"], "Env": ["PATH=/bin", "FROM_IMAGE=yes"], "WorkingDir": "/tmp"}
# What 1.6 ignores: in 2.x NRI listens on a socket of the machine's own engine, and imports go
# through the transfer service.
_CONTAINERD = """\
version = 2
root = "{root}/root"
state = "{root}/state"
[grpc]
  address = "{socket}"
[plugins."io.containerd.nri.v1.nri"]
  disable = true
[[plugins."io.containerd.transfer.v1.local".unpack_config]]
  platform = "linux"
  snapshotter = "native"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{image}"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "native"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{root}/cni"
"""
_NETWORK = {
    "cniVersion": "1.0.0",
    "name": "pairs",
    "plugins": [
        {"type": "ptp", "ipam": {"type": "host-local", "subnet": "10.199.0.0/24"}},
    ],
}


def require(kind: str) -> None:
    """Skip the test where a runtime cannot be had."""
    if kind == HOLLOW:
        return
    if os.geteuid() != 0:
        pytest.skip("containers need root")
    if not is_static(BUSYBOX):
        pytest.skip("a static busybox is not installed")
    if kind == "cri" and not (shutil.which("containerd") and shutil.which("runc")):
        pytest.skip("containerd is not installed")
    if kind == "cri" and not Path("/usr/lib/cni/loopback").exists():
        pytest.skip("the plugins of CNI are not installed")


def _layer() -> bytes:
    """Return the files of the image."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name in ("bin", "etc", "tmp", "proc", "sys", "dev"):
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
            tar.addfile(entry)
        users = b"root:x:0:0:root:/root:/bin/sh\nsomebody:x:1234:1234::/tmp:/bin/sh\n"
        entry = tarfile.TarInfo("etc/passwd")
        entry.size, entry.mode = len(users), 0o644
        tar.addfile(entry, io.BytesIO(users))
        entry = tar.gettarinfo(str(BUSYBOX.resolve()), "bin/busybox")
        entry.mode = 0o755
        with BUSYBOX.open("rb") as file:
            tar.addfile(entry, file)
        for name in subprocess.check_output([str(BUSYBOX), "--list"], text=True).split():
            if name == "busybox":
                continue
            link = tarfile.TarInfo(f"bin/{name}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(link)
    return buffer.getvalue()


def write_archive(path: Path, image: str = IMAGE, entrypoint: tuple[str, ...] = ()) -> None:
    """Write an image as `docker save` does."""
    layer = _layer()
    digest = hashlib.sha256(layer).hexdigest()
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {**CONFIG, "Entrypoint": entrypoint, "Cmd": []} if entrypoint else CONFIG,
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
        }
    ).encode()
    name = hashlib.sha256(config).hexdigest() + ".json"
    manifest = [{"Config": name, "RepoTags": [image], "Layers": ["layer.tar"]}]
    with tarfile.open(path, "w") as tar:
        for member, data in (
            (name, config),
            ("layer.tar", layer),
            ("manifest.json", json.dumps(manifest).encode()),
        ):
            entry = tarfile.TarInfo(member)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))


def own_uid(name: str) -> str:
    """Return the uid of a pod that no other run of these tests on this machine has.

    Interfaces of pods are named by it, and are the machine's.
    """
    return f"uid-{name}-{os.getpid()}"


def own_range() -> str:
    """Return a range for pods that no other run of these tests on this machine takes."""
    number = os.getpid()
    return f"10.{192 + number % 6}.{number // 6 % 256}.0/24"


@asynccontextmanager
async def opened(
    kind: str, directory: Path, devices: DeviceGroups | None = None
) -> AsyncIterator[Runtime]:
    """Give a runtime that is open; devices: by what processes are limited to some."""
    require(kind)
    if kind == HOLLOW:
        yield HollowRuntime(IPv4Network(own_range()), SystemClock(), "node-a")
        return
    if kind == "process":
        images = directory / "images"
        images.mkdir(parents=True, exist_ok=True)
        archive = images / "localhost%2Fbusybox:1.tar"
        if not archive.exists():
            write_archive(archive)
        runtime = ProcessRuntime(
            ProcessOptions(
                directory,
                ends_with_node=False,
                node_ips=("192.0.2.7",),
                network=AUTOMATIC,
                state=directory / "run",
            ),
            Images(images, has_host=False),
            SystemClock(),
            lambda _uid: None,
            devices=devices,
        )
        await runtime.open()
        await runtime.use_ranges([own_range()])
        try:
            yield runtime
        finally:
            await runtime.close()
        return
    socket = await _containerd(directory)
    options = CriOptions(f"unix://{socket}", directory, directory / "logs")
    engine = CriRuntime(options, SystemClock(), ListLog(), lambda _uid: None)
    await answered(lambda: is_open(engine))
    try:
        yield engine
    finally:
        await engine.close()


_ENGINES: dict[Path, subprocess.Popen[bytes]] = {}


async def _containerd(directory: Path) -> Path:
    """Start containerd for a directory, unless it runs; return its socket."""
    root = directory / "containerd"
    socket = Path(f"/tmp/kvstack-test-{os.getpid()}-{abs(hash(directory)) % 10**8}.sock")
    if directory in _ENGINES:
        return socket
    (root / "cni").mkdir(parents=True)
    (root / "cni" / "net.conflist").write_text(json.dumps(_NETWORK))
    config = root / "config.toml"
    config.write_text(_CONTAINERD.format(root=root, socket=socket, image=PAUSE))
    _ENGINES[directory] = _run_engine(config, root / "log")
    for image, entrypoint in ((IMAGE, ()), (PAUSE, ("/bin/sleep", "1000000"))):
        archive = root / "image.tar"
        await asyncio.to_thread(write_archive, archive, image, entrypoint)
        await _import(socket, archive)
    return socket


def _run_engine(config: Path, log_file: Path) -> subprocess.Popen[bytes]:
    with log_file.open("wb") as log:
        return subprocess.Popen(["containerd", "-c", str(config)], stdout=log, stderr=log)


async def _import(socket: Path, archive: Path) -> None:
    """Give an image to containerd, once it answers."""

    async def is_taken() -> bool:
        importing = await asyncio.create_subprocess_exec(
            *("ctr", "-a", str(socket), "-n", "k8s.io", "images", "import"),
            *("--snapshotter", "native", str(archive)),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        return await importing.wait() == 0

    await answered(is_taken)


async def is_open(engine: CriRuntime) -> bool:
    """Whether an engine answers already."""
    try:
        await engine.open()
    except ConfigError:
        return False
    return True


def close(directory: Path) -> None:
    """End the containerd of a directory."""
    engine = _ENGINES.pop(directory, None)
    if engine is not None:
        engine.terminate()
        engine.wait()
