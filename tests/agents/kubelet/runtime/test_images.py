"""Images of a directory: what is found, and how archives are unpacked."""

import errno
import io
import json
import stat
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
    with pytest.raises(StartError, match="is not an image"):
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


Entry = tuple[str, bytes, str, int]
"""Name, type, aim of a link, mode."""


def entries(*files: Entry) -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as file:
        for name, kind, aim, mode in files:
            info = tarfile.TarInfo(name)
            info.type, info.linkname, info.mode = kind, aim, mode
            file.addfile(info)
    return data.getvalue()


def test_layers_change_nothing_outside(tmp_path: Path) -> None:
    """By directories, other names and whiteouts at links that a layer has put there."""
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o700)
    (outside / "kept").write_text("kept")
    (outside / "kept").chmod(0o600)
    layers = [
        entries(
            ("directory", tarfile.SYMTYPE, str(outside), 0o777),
            ("opaque", tarfile.SYMTYPE, str(outside), 0o777),
            ("file", tarfile.SYMTYPE, str(outside / "kept"), 0o777),
            ("other", tarfile.LNKTYPE, "file", 0o666),
            ("device", tarfile.BLKTYPE, "", 0o666),
        ),
        entries(
            ("directory", tarfile.DIRTYPE, "", 0o777),
            ("opaque/.wh..wh..opq", tarfile.REGTYPE, "", 0o644),
        ),
    ]
    with tarfile.open(tmp_path / "sly:1.tar", "w") as file:
        manifest = [{"Config": "c.json", "Layers": ["0", "1"]}]
        add(file, "manifest.json", json.dumps(manifest).encode())
        add(file, "c.json", b"{}")
        for number, data in enumerate(layers):
            add(file, str(number), data)
    image = Images(tmp_path, has_host=False).find("sly:1")
    assert (outside / "kept").read_text() == "kept"
    assert stat.S_IMODE((outside / "kept").stat().st_mode) == 0o600
    assert stat.S_IMODE(outside.stat().st_mode) == 0o700
    found = {each.name: stat.S_IFMT(each.lstat().st_mode) for each in image.root.iterdir()}
    links = dict.fromkeys(("opaque", "file", "other"), stat.S_IFLNK)
    assert found == {"directory": stat.S_IFDIR, **links}


@pytest.mark.parametrize("aim", ["/etc/passwd", "../../etc/passwd", "out/passwd"])
def test_a_hard_link_that_leads_out_is_refused(tmp_path: Path, aim: str) -> None:
    data = entries(("out", tarfile.SYMTYPE, "/etc", 0o777), ("users", tarfile.LNKTYPE, aim, 0o666))
    with tarfile.open(tmp_path / "evil:1.tar", "w") as file:
        manifest = [{"Config": "c.json", "Layers": ["l"]}]
        add(file, "manifest.json", json.dumps(manifest).encode())
        add(file, "c.json", b"{}")
        add(file, "l", data)
    with pytest.raises(StartError, match="leads out of the image"):
        Images(tmp_path, has_host=False).find("evil:1")


def test_a_layout_names_only_its_own_files(tmp_path: Path) -> None:
    layout = tmp_path / "evil:1"
    (layout / "blobs" / "sha256").mkdir(parents=True)
    (tmp_path / "outside").write_text(json.dumps(CONFIG))
    index = {"manifests": [{"digest": "sha256:../../../outside"}]}
    (layout / "index.json").write_text(json.dumps(index))
    with pytest.raises(StartError, match=r"cross-device|leads out"):
        Images(tmp_path, has_host=False).find("evil:1")


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


MANIFEST = json.dumps([{"Config": "c.json", "Layers": ["layer.tar"]}]).encode()
LAYER = LAYERS[0]
NONE: list[dict[str, bytes]] = [
    {"manifest.json": each}
    for each in (b"[1]", b"{}", b"7", b'["x"]', b"[" * 100_000, b'[{"Config": 1, "Layers": []}]')
]
NONE += [
    {"manifest.json": b" " * (5 << 20)},
    {"index.json": b'{"manifests": [null]}'},
    {"manifest.json": MANIFEST, "c.json": b"[]", "layer.tar": LAYER},
    {"manifest.json": MANIFEST, "c.json": b"{}", "layer.tar": LAYER[: len(LAYER) // 2]},
    {"manifest.json": MANIFEST, "c.json": b"{}", "layer.tar": LAYER[:30] + b"x" * 40 + LAYER[70:]},
]


@pytest.mark.parametrize("members", NONE)
def test_bytes_that_are_no_image_are_refused(tmp_path: Path, members: dict[str, bytes]) -> None:
    with tarfile.open(tmp_path / "web:latest.tar", "w") as file:
        for name, data in members.items():
            add(file, name, data)
    with pytest.raises(StartError, match="is not an image"):
        Images(tmp_path, has_host=False).find("web")
    assert not list((tmp_path / ".unpacked").glob("*"))


def test_what_does_not_fit_on_the_disk_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half an image would keep a full disk full, of which the store has its space."""
    with tarfile.open(tmp_path / "web:latest.tar", "w") as file:
        for name, data in {"manifest.json": MANIFEST, "c.json": b"{}", "layer.tar": LAYER}.items():
            add(file, name, data)

    def full(_: object, member: tarfile.TarInfo, path: Path, **__: object) -> None:
        (path / "half").write_bytes(b"x")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tarfile.TarFile, "extract", full)
    with pytest.raises(StartError, match="No space left"):
        Images(tmp_path, has_host=False).find("web")
    assert not list((tmp_path / ".unpacked").glob("*"))
    monkeypatch.undo()
    assert (Images(tmp_path, has_host=False).find("web").root / "a").read_text() == "old"
