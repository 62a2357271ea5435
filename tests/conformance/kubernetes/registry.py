"""A registry of images for the engine of the conformance tests: tests that pull have no other.

    add(directory, "registry.k8s.io/pause:3.10.2", archive)       keep an image of an archive
    with registry(directory, network.command(SECOND)) as address:  serve them on a machine
        address                                                    "127.0.0.1:34567"

It serves the part of the OCI distribution API that pulls an image, and only reads: `/v2/`,
manifests by tag and by digest, and blobs. An engine that has it as a mirror says in `ns` which
registry it means. It listens on the loopback address of the machine, and ends with its standard
input, so it does not outlive who started it.

In the directory, `blobs/sha256` has manifests and blobs by digest, and `tags` the digest of the
manifest of each image by the image's name.
"""

import hashlib
import json
import posixpath
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import IO, Any, ClassVar, Final
from urllib.parse import parse_qs, quote, unquote, urlsplit

from typing_extensions import override

_MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
_INDEX: Final = "application/vnd.oci.image.index.v1+json"
_CONFIG: Final = "application/vnd.oci.image.config.v1+json"
_LAYER: Final = "application/vnd.oci.image.layer.v1.tar"
_COMPRESSED: Final = {b"\x1f\x8b": "+gzip", b"\x28\xb5": "+zstd"}
_PATH: Final = re.compile(r"/v2/(?P<name>.+)/(?P<kind>manifests|blobs)/(?P<reference>[^/]+)")
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_MANIFEST_MAX: Final = 4 << 20
"""No more of a manifest is read, as other registries have it."""
_IDLE_S: Final = 60.0


# What it has.


def add(directory: Path, image: str, archive: Path) -> str:
    """Keep an image of an archive, which is an OCI layout or as `docker save` writes it.

    image: its full name, with the registry and a tag. Return the digest of its manifest. Raises
    ValueError if there is not exactly one image.
    """
    for each in ("blobs/sha256", "tags"):
        (directory / each).mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive) as tar:
        members = {posixpath.normpath(each.name): each for each in tar.getmembers()}
        if "index.json" in members:
            digest = _take_layout(directory, tar, members)
        else:
            digest = _take_saved(directory, tar, members)
    (directory / "tags" / quote(image, safe="")).write_text(digest)
    return digest


def _take_layout(
    directory: Path, tar: tarfile.TarFile, members: Mapping[str, tarfile.TarInfo]
) -> str:
    for name, member in members.items():
        if member.isfile() and name.startswith("blobs/sha256/"):
            digest, _ = _store(directory, _opened(tar, member))
            if digest != f"sha256:{posixpath.basename(name)}":
                raise ValueError(f"{tar.name!r}: {name} has the digest {digest}")
    index = json.load(_opened(tar, members["index.json"]))
    return str(_only(tar, index["manifests"])["digest"])


def _take_saved(
    directory: Path, tar: tarfile.TarFile, members: Mapping[str, tarfile.TarInfo]
) -> str:
    if "manifest.json" not in members:
        raise ValueError(f"{tar.name!r} has neither index.json nor manifest.json")
    saved = _only(tar, json.load(_opened(tar, members["manifest.json"])))

    def descriptor(name: str, media_type: str) -> dict[str, object]:
        with _opened(tar, members[posixpath.normpath(name)]) as file:
            kind = _COMPRESSED.get(file.read(2), "") if media_type == _LAYER else ""
            file.seek(0)
            digest, size = _store(directory, file)
        return {"mediaType": media_type + kind, "digest": digest, "size": size}

    manifest = {
        "schemaVersion": 2,
        "mediaType": _MANIFEST,
        "config": descriptor(saved["Config"], _CONFIG),
        "layers": [descriptor(each, _LAYER) for each in saved["Layers"]],
    }
    with tempfile.TemporaryFile() as file:
        file.write(json.dumps(manifest).encode())
        file.seek(0)
        return _store(directory, file)[0]


def _only(tar: tarfile.TarFile, images: Sequence[Any]) -> Any:
    if len(images) != 1:
        raise ValueError(f"{tar.name!r} has {len(images)} images, and should have one")
    return images[0]


def _opened(tar: tarfile.TarFile, member: tarfile.TarInfo) -> IO[bytes]:
    file = tar.extractfile(member)
    if file is None:
        raise ValueError(f"{tar.name!r}: {member.name} is not a file")
    return file


def _store(directory: Path, file: IO[bytes]) -> tuple[str, int]:
    """Keep what a file has; return digest and size."""
    new = directory / "blobs" / "new"
    hashed = hashlib.sha256()
    with new.open("wb") as target:
        while piece := file.read(1 << 20):
            hashed.update(piece)
            target.write(piece)
        size = target.tell()
    new.rename(directory / "blobs" / "sha256" / hashed.hexdigest())
    return f"sha256:{hashed.hexdigest()}", size


# How it is served.


@contextmanager
def registry(directory: Path, prefix: Sequence[str] = ()) -> Iterator[str]:
    """Serve what a directory has; return host and port. prefix: enters a machine's namespace."""
    command = (*prefix, sys.executable, "-m", __name__, str(directory))
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    assert process.stdout is not None
    with process.stdin, process.stdout:
        try:
            port = process.stdout.readline().strip()
            if not port:
                raise RuntimeError(f"the registry has ended with exit code {process.wait()}")
            yield f"127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait()


class _Handler(BaseHTTPRequestHandler):
    """Answers one connection."""

    protocol_version = "HTTP/1.1"
    timeout: ClassVar[float | None] = _IDLE_S
    directory = Path()

    def do_GET(self) -> None:
        self._answer(has_body=True)

    def do_HEAD(self) -> None:
        self._answer(has_body=False)

    def _answer(self, *, has_body: bool) -> None:
        url = urlsplit(self.path)
        if url.path == "/v2/":
            self._send(HTTPStatus.OK, "application/json", 0)
            return
        requested = _PATH.fullmatch(unquote(url.path))
        registries = parse_qs(url.query).get("ns", [self.headers.get("Host", "")])
        digest = self._digest(requested, registries[0]) if requested else ""
        path = self.directory / "blobs" / "sha256" / digest.removeprefix("sha256:")
        if requested is None or not _DIGEST.fullmatch(digest) or not path.is_file():
            self._send(HTTPStatus.NOT_FOUND, "application/json", 0)
            return
        is_manifest = requested["kind"] == "manifests"
        media_type = _media_type(path) if is_manifest else "application/octet-stream"
        with path.open("rb") as file:
            self._send(HTTPStatus.OK, media_type, path.stat().st_size, digest)
            if has_body:
                shutil.copyfileobj(file, self.wfile)

    def _digest(self, requested: re.Match[str], source: str) -> str:
        """Return the digest that is asked for; empty: there is no such tag."""
        reference = requested["reference"]
        if requested["kind"] == "blobs" or ":" in reference:
            return reference
        image = f"{source}/{requested['name']}:{reference}"
        tag = self.directory / "tags" / quote(image, safe="")
        try:
            return tag.read_text()
        except OSError:  # there is none, or the name is longer than that of any file
            return ""

    def _send(self, status: HTTPStatus, media_type: str, size: int, digest: str = "") -> None:
        self.send_response(status)
        self.send_header("Docker-Distribution-Api-Version", "registry/2.0")
        self.send_header("Content-Type", media_type)
        self.send_header("Content-Length", str(size))
        if digest:
            self.send_header("Docker-Content-Digest", digest)
        self.end_headers()

    @override
    def log_message(self, format: str, *args: object) -> None:
        """Log to standard error what was refused alone."""
        if len(args) < 2 or str(args[1]) != "200":
            super().log_message(format, *args)


def _media_type(manifest: Path) -> str:
    """Return the type that a manifest has in it, or that its fields show."""
    with manifest.open("rb") as file:
        try:
            fields = json.loads(file.read(_MANIFEST_MAX))
        except ValueError:  # some other blob
            return "application/octet-stream"
    default = _INDEX if "manifests" in fields else _MANIFEST
    return str(fields.get("mediaType", default))


def serve(directory: Path) -> None:
    """Serve until standard input ends; write the port to standard output."""
    handler = type("Handler", (_Handler,), {"directory": directory})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        sys.stdout.write(f"{server.server_address[1]}\n")
        sys.stdout.flush()
        sys.stdin.read()
        server.shutdown()


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
