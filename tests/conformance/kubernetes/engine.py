"""A node of containerd for the conformance tests: the engine, its images and its network.

    with engine(machines, SECOND, directory, images) as containerd:
        containerd.socket              for `kvstack join --container-runtime-endpoint`
        containerd.connect(range, …)   `kvstack cni install`, once the node has a range

The engine has a configuration, a state and a socket of its own, and runs in the namespace of the
machine; whatever it ran ends with it. It has the images from the start, and pulls them from a
registry of its own, for the machine reaches no other.

containerd 1.6 and later take the configuration; 2.x reads that of version 2, too.
"""

import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, TypeVar

import grpc
from google.protobuf.message import Message

from kvstack.agents.kubelet.runtime.cri.gen import api_pb2 as cri
from tests.conformance.kubernetes.registry import add, registry
from tests.support.network.machines import Machines
from tests.support.waiting import wait_for

LOOPBACK: Final = Path("/usr/lib/cni/loopback")
"""A plugin that containerd asks for besides, whatever the network is."""
_IMPORT_S: Final = 300.0
_STOP_S: Final = 120.0
M = TypeVar("M", bound=Message)
_PAUSE: Final = "/pause:"
# Machines may not let even root lower its score, as containers with few capabilities. NRI, which
# later engines have, would listen on a socket of the machine's own engine.
_CONFIG: Final = """\
version = 2
root = "{root}/root"
state = "{root}/state"
[grpc]
  address = "{socket}"
[plugins."io.containerd.internal.v1.opt"]
  path = "{root}/opt"
[plugins."io.containerd.nri.v1.nri"]
  disable = true
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{root}/bin"
    conf_dir = "{root}/net.d"
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "{root}/hosts"
"""
_MIRROR: Final = """\
server = "http://{address}"
[host."http://{address}"]
  capabilities = ["pull", "resolve"]
"""
"""The engine asks the mirror alone: what it has not got is not there."""


class Containerd:
    """The engine of one machine."""

    def __init__(self, network: Machines, machine: str, root: Path) -> None:
        self._network = network
        self._machine = machine
        self.root = root
        self.images = root / "registry"
        self.socket = Path(f"/run/kvstack-conformance-{os.getpid()}.sock")

    def command(self, *arguments: str) -> list[str]:
        """Return a command of `ctr`."""
        ctr = ("ctr", "--address", str(self.socket), "--namespace", "k8s.io", *arguments)
        return self._network.command(self._machine, *ctr)

    def connect(self, kubeconfig: Path, cluster_ranges: str) -> None:
        """Make kvstack's network that of the engine's pods; the node has to have a range."""
        (self.root / "bin").mkdir(exist_ok=True)
        (self.root / "bin" / LOOPBACK.name).symlink_to(LOOPBACK)
        self._network.output(
            self._machine,
            *(sys.executable, "-m", "kvstack", "cni", "install", f"--kubeconfig={kubeconfig}"),
            *(f"--node-name={self._machine}", f"--cluster-cidr={cluster_ranges}"),
            *(f"--bin-dir={self.root / 'bin'}", f"--conf-dir={self.root / 'net.d'}"),
        )

    def use_registry(self, images: Iterable[str], address: str) -> None:
        """Make what listens there the mirror of the registries of images."""
        for host in {image.partition("/")[0] for image in images}:
            directory = self.root / "hosts" / host
            directory.mkdir(parents=True)
            (directory / "hosts.toml").write_text(_MIRROR.format(address=address))

    def take(self, image: str, path: Path) -> None:
        """Import an image, which the registry has then, too.

        path: an archive, or a directory as `kvstack up --image-dir` takes it.
        """
        archive = path
        if path.is_dir():
            archive = self.root / "image.tar"
            write_archive(image, path, archive)
        add(self.images, image, archive)
        command = self.command("images", "import", str(archive))
        subprocess.run(command, check=True, capture_output=True, timeout=_IMPORT_S)
        if archive != path:
            archive.unlink()

    def end(self) -> None:
        """End what is still running; whoever starts pods has to have ended."""
        try:
            self._remove_sandboxes()
        except grpc.RpcError as error:
            sys.stderr.write(f"pods of the engine are killed, for it does not stop them: {error}\n")
        self._end_tasks()

    def _remove_sandboxes(self) -> None:
        """Stop pods as a kubelet does: their shims and network namespaces would stay otherwise."""
        with grpc.insecure_channel(f"unix://{self.socket}") as channel:

            def call(name: str, request: Message, answer: type[M]) -> M:
                method = channel.unary_unary(
                    f"/runtime.v1.RuntimeService/{name}",
                    request_serializer=type(request).SerializeToString,
                    response_deserializer=answer.FromString,
                )
                return method(request, timeout=_STOP_S)

            listed = call("ListPodSandbox", cri.ListPodSandboxRequest(), cri.ListPodSandboxResponse)
            for each in listed.items:
                stop = cri.StopPodSandboxRequest(pod_sandbox_id=each.id)
                call("StopPodSandbox", stop, cri.StopPodSandboxResponse)
                remove = cri.RemovePodSandboxRequest(pod_sandbox_id=each.id)
                call("RemovePodSandbox", remove, cri.RemovePodSandboxResponse)

    def _end_tasks(self) -> None:
        listed = subprocess.run(
            self.command("tasks", "list"), check=False, capture_output=True, text=True
        )
        for line in listed.stdout.splitlines()[1:]:
            with suppress(ProcessLookupError):
                os.kill(int(line.split()[1]), 9)


def write_archive(image: str, directory: Path, archive: Path) -> None:
    """Write an image as `docker save` does; directory: with `rootfs` and `config.json`."""
    layer = archive.with_suffix(".layer")
    with tarfile.open(layer, "w") as tar:
        tar.add(directory / "rootfs", ".")
    with layer.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    file_config = directory / "config.json"
    given: dict[str, Any] = json.loads(file_config.read_text()) if file_config.exists() else {}
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": given,
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
        }
    ).encode()
    name = hashlib.sha256(config).hexdigest() + ".json"
    manifest = json.dumps([{"Config": name, "RepoTags": [image], "Layers": ["layer.tar"]}]).encode()
    with tarfile.open(archive, "w") as tar:
        for member, data in ((name, config), ("manifest.json", manifest)):
            entry = tarfile.TarInfo(member)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
        tar.add(layer, "layer.tar")
    layer.unlink()


@contextmanager
def engine(
    network: Machines, machine: str, directory: Path, images: Mapping[str, Path]
) -> Iterator[Containerd]:
    """Run containerd on a machine, with images, each by its name."""
    found = Containerd(network, machine, directory / "containerd")
    (found.root / "net.d").mkdir(parents=True)
    pause = next(each for each in images if _PAUSE in each)
    config, log_file = found.root / "config.toml", found.root / "log"
    config.write_text(_CONFIG.format(root=found.root, socket=found.socket, pause=pause))
    with registry(found.images, network.command(machine)) as address, log_file.open("wb") as log:
        found.use_registry(images, address)
        command = network.command(machine, "containerd", "--config", str(config))
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:

            def answers() -> bool:
                assert process.poll() is None, log_file.read_text()[-3000:]
                done = subprocess.run(found.command("version"), check=False, capture_output=True)
                return done.returncode == 0

            wait_for(answers, "containerd answers")
            for image, where in images.items():
                found.take(image, where)
            yield found
        finally:
            found.end()
            process.terminate()
            process.wait()
            unmount_below(found.root)
            for each in (found.socket, Path(f"{found.socket}.ttrpc")):
                each.unlink(missing_ok=True)


def unmount_below(root: Path) -> None:
    """Unmount what is left below a directory, innermost first."""
    points = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    for point in reversed([each for each in points if each.startswith(f"{root}/")]):
        subprocess.run(["umount", "--lazy", point], check=False, capture_output=True)
