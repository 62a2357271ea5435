"""The registry of the conformance tests' engine: what pulls an image gets what its archive has."""

import gzip
import hashlib
import http.client
import io
import json
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.conformance.kubernetes.engine import write_archive
from tests.conformance.kubernetes.registry import add, registry

IMAGE = "registry.example/team/kitten:1.8"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"


class Got(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes


def ask(address: str, path: str, method: str = "GET") -> Got:
    with closing(http.client.HTTPConnection(address, timeout=60)) as connection:
        connection.request(method, path)
        answer = connection.getresponse()
        return Got(answer.status, dict(answer.getheaders()), answer.read())


def digest_of(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def write_tar(path: Path, files: Mapping[str, bytes]) -> Path:
    with tarfile.open(path, "w") as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return path


def test_an_image_is_pulled_as_engines_do(tmp_path: Path) -> None:
    (tmp_path / "image" / "rootfs").mkdir(parents=True)
    (tmp_path / "image" / "rootfs" / "data.json").write_text("kitten.jpg")
    archive = tmp_path / "image.tar"
    write_archive(IMAGE, tmp_path / "image", archive)
    store = tmp_path / "store"
    digest = add(store, IMAGE, archive)
    with registry(store) as address:
        assert ask(address, "/v2/").status == 200
        path = "/v2/team/kitten/manifests/1.8?ns=registry.example"
        head = ask(address, path, "HEAD")
        assert (head.status, head.body) == (200, b"")
        assert head.headers["Content-Type"] == MANIFEST
        assert head.headers["Docker-Content-Digest"] == digest
        by_tag = ask(address, path)
        assert by_tag.body == ask(address, f"/v2/team/kitten/manifests/{digest}").body
        assert int(head.headers["Content-Length"]) == len(by_tag.body)
        assert digest_of(by_tag.body) == digest
        manifest: dict[str, Any] = json.loads(by_tag.body)
        parts = [manifest["config"], *manifest["layers"]]
        config, layer = (ask(address, f"/v2/team/kitten/blobs/{part['digest']}") for part in parts)
    for part, got in zip(parts, (config, layer), strict=True):
        assert (got.status, digest_of(got.body), len(got.body)) == (
            200, part["digest"], part["size"],
        )  # fmt: skip
    assert json.loads(config.body)["rootfs"]["diff_ids"] == [digest_of(layer.body)]
    with tarfile.open(fileobj=io.BytesIO(layer.body)) as tar:
        data = tar.extractfile("./data.json")
        assert data is not None
        assert data.read() == b"kitten.jpg"


def test_unknown_contents_get_404(tmp_path: Path) -> None:
    layer = gzip.compress(b"layer")
    saved = json.dumps([{"Config": "c.json", "Layers": ["./0/layer.tar"]}]).encode()
    files = {"manifest.json": saved, "c.json": b"{}", "0/layer.tar": layer}
    (tmp_path / "secret").write_text("x")
    add(tmp_path / "store", IMAGE, write_tar(tmp_path / "saved.tar", files))
    wrong = digest_of(b"another")
    with registry(tmp_path / "store") as address:
        manifest = ask(address, "/v2/team/kitten/manifests/1.8?ns=registry.example")
        [part] = json.loads(manifest.body)["layers"]
        assert part["mediaType"] == "application/vnd.oci.image.layer.v1.tar+gzip"
        for path in (
            "/v2/team/kitten/manifests/1.9?ns=registry.example",
            "/v2/team/kitten/manifests/1.8?ns=other.example",
            "/v2/team/kitten/manifests/1.8",
            f"/v2/team/kitten/manifests/{wrong}",
            f"/v2/team/kitten/blobs/{wrong}",
            "/v2/team/kitten/blobs/..%2f..%2f..%2fsecret",
            "/v2/team/kitten/blobs/sha256:..%2f..%2f..%2fsecret",
            f"/v2/{'x' * 5000}/manifests/1",
            "/v1/",
            "/",
        ):
            assert ask(address, path).status == 404, path
        assert ask(address, "/v2/team/kitten/blobs/uploads/", "POST").status == 501


def test_an_archive_with_a_layout(tmp_path: Path) -> None:
    manifest = json.dumps({"schemaVersion": 2, "layers": []}).encode()
    digest = digest_of(manifest)
    index = json.dumps({"manifests": [{"digest": digest, "size": len(manifest)}]}).encode()
    blob = f"blobs/sha256/{digest.removeprefix('sha256:')}"
    archive = write_tar(tmp_path / "oci.tar", {"index.json": index, blob: manifest})
    assert add(tmp_path / "store", IMAGE, archive) == digest
    with registry(tmp_path / "store") as address:
        got = ask(address, "/v2/team/kitten/manifests/1.8?ns=registry.example")
    assert (got.headers["Content-Type"], got.body) == (MANIFEST, manifest)
    write_tar(archive, {"index.json": index, blob: b"something else"})
    with pytest.raises(ValueError, match=f"{blob} has the digest {digest_of(b'something else')}"):
        add(tmp_path / "store", IMAGE, archive)


@pytest.mark.parametrize(
    ("files", "problem"),
    [
        ({"other": b""}, "neither index.json nor manifest.json"),
        ({"manifest.json": b"[{}, {}]"}, "has 2 images"),
        ({"index.json": b'{"manifests": []}'}, "has 0 images"),
    ],
)
def test_an_archive_without_one_image(
    files: Mapping[str, bytes], problem: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=problem):
        add(tmp_path / "store", IMAGE, write_tar(tmp_path / "image.tar", files))


def test_it_ends_with_what_started_it(tmp_path: Path) -> None:
    with registry(tmp_path) as address:
        assert ask(address, "/v2/").status == 200
    with pytest.raises(ConnectionRefusedError):
        ask(address, "/v2/")
    command = (sys.executable, "-m", "tests.conformance.kubernetes.registry", str(tmp_path))
    orphan = subprocess.run(
        command, check=False, stdin=subprocess.DEVNULL, capture_output=True, timeout=60
    )
    assert (orphan.returncode, orphan.stderr) == (0, b"")
    assert int(orphan.stdout) > 0


def test_one_that_does_not_begin_is_an_error(tmp_path: Path) -> None:
    prefix = ("sh", "-c", "exit 3")
    with pytest.raises(RuntimeError, match="exit code 3"), registry(tmp_path, prefix):
        pass
