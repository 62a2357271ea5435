"""Images of a directory: what is found, and how archives are unpacked."""

import io
import json
import tarfile
from pathlib import Path

import pytest

from kvstack.agents.kubelet.runtime.process.images import Images
from kvstack.agents.kubelet.runtime.runtime import ImageMissingError, StartError

CONFIG = {"config": {"Entrypoint": ["/run"], "Cmd": ["x"], "Env": ["A=1=2"], "WorkingDir": "/w"}}


def layer(**files: str) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as file:
        for name, text in files.items():
            add(file, name.replace("__", "/"), text.encode())
    return data.getvalue()


def add(file: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    file.addfile(info, io.BytesIO(data))


LAYERS = (
    layer(a="old", d__b="b", d__c="c", e__f="f"),
    layer(**{"a": "new", "d__.wh.b": "", "e__.wh..wh..opq": "", "e__g": "g"}),
)


def check(images: Images) -> None:
    image = images.find("team/web:1")
    assert (image.entrypoint, image.command) == (("/run",), ("x",))
    assert image.environment == {"A": "1=2"}
    assert image.directory == "/w"
    found = {
        str(each.relative_to(image.root)): each.read_text()
        for each in image.root.rglob("*")
        if each.is_file()
    }
    assert found == {"a": "new", "d/c": "c", "e/g": "g"}
    assert images.find("team/web:1").root == image.root


def test_an_archive_of_docker(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "team%2Fweb:1.tar", "w") as file:
        manifest = [{"Config": "c.json", "Layers": ["0/layer.tar", "1/layer.tar"]}]
        add(file, "manifest.json", json.dumps(manifest).encode())
        add(file, "c.json", json.dumps(CONFIG).encode())
        for number, data in enumerate(LAYERS):
            add(file, f"{number}/layer.tar", data)
    check(Images(tmp_path, has_host=False))


def test_an_oci_layout(tmp_path: Path) -> None:
    layout = tmp_path / "team%2Fweb:1"
    blobs = layout / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    manifest = {
        "config": {"digest": "sha256:c"},
        "layers": [{"digest": "sha256:0"}, {"digest": "sha256:1"}],
    }
    (blobs / "c").write_text(json.dumps(CONFIG))
    (blobs / "m").write_text(json.dumps(manifest))
    for number, data in enumerate(LAYERS):
        (blobs / str(number)).write_bytes(data)
    (layout / "index.json").write_text(json.dumps({"manifests": [{"digest": "sha256:m"}]}))
    check(Images(tmp_path, has_host=False))


def test_a_directory_and_the_host(tmp_path: Path) -> None:
    (tmp_path / "web:latest" / "rootfs").mkdir(parents=True)
    images = Images(tmp_path, has_host=True)
    assert images.find("web").root == tmp_path / "web:latest" / "rootfs"
    assert images.find("host").root == Path("/")
    with pytest.raises(ImageMissingError, match="this runtime does not pull"):
        Images(tmp_path, has_host=False).find("host")


def test_what_is_no_image(tmp_path: Path) -> None:
    (tmp_path / "bad:1.tar").write_bytes(b"no archive")
    with pytest.raises(StartError, match="is no image"):
        Images(tmp_path, has_host=False).find("bad:1")


def linked() -> bytes:
    """Return a layer that writes through a link that leads out."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as file:
        info = tarfile.TarInfo("out")
        info.type, info.linkname = tarfile.SYMTYPE, "/tmp"
        file.addfile(info)
        add(file, "out/x", b"out")
    return data.getvalue()


@pytest.mark.parametrize("data", [layer(**{"..__x": "out"}), linked()], ids=["above", "linked"])
def test_a_layer_that_leads_out_is_refused(tmp_path: Path, data: bytes) -> None:
    with tarfile.open(tmp_path / "evil:1.tar", "w") as file:
        manifest = [{"Config": "c.json", "Layers": ["l"]}]
        add(file, "manifest.json", json.dumps(manifest).encode())
        add(file, "c.json", b"{}")
        add(file, "l", data)
    with pytest.raises(StartError, match="leads out of the image"):
        Images(tmp_path, has_host=False).find("evil:1")
    assert not (tmp_path / "x").exists()
