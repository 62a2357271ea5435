"""What the image runs: its entry point, its health check, its labels; and the project's licence."""

import os
import re
import runpy
import shlex
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
from typing_extensions import override

from kvstack.cli import COMMANDS

ROOT = Path(__file__).parents[2]
ENTRYPOINT = ROOT / "packaging" / "entrypoint.sh"
HEALTHCHECK = ROOT / "packaging" / "healthcheck.py"


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """Return a folder with programs that print how they were called."""
    for name in ("kvstack", "kvstore", "kvstore-util"):
        program = tmp_path / name
        program.write_text('#!/bin/sh\necho "${0##*/}" "$@"\n')
        program.chmod(0o755)
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "called"),
    [
        ("", "kvstore"),
        ("--data-dir=/data --name=one", "kvstore --data-dir=/data --name=one"),
        ("gateway start", "kvstore gateway start"),
        ("grpc-proxy start", "kvstore grpc-proxy start"),
        ("kvstore --version", "kvstore --version"),
        ("kvstore-util snapshot status x", "kvstore-util snapshot status x"),
        ("kvstack up", "kvstack up"),
        *((f"{name} --help", f"kvstack {name} --help") for name in COMMANDS),
    ],
)
def test_the_image_runs_every_command_by_its_name(
    arguments: str, called: str, programs: Path
) -> None:
    done = subprocess.run(
        ["/bin/sh", str(ENTRYPOINT), *shlex.split(arguments)],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": f"{programs}:{os.environ['PATH']}"},
    )
    assert done.stdout == f"{called}\n"


def test_the_entry_point_is_the_image_s_and_executable() -> None:
    text = (ROOT / "Dockerfile").read_text()
    assert os.access(ENTRYPOINT, os.X_OK)  # COPY keeps the mode
    assert "COPY packaging/entrypoint.sh /usr/local/bin/kvstack-entrypoint\n" in text
    assert 'ENTRYPOINT ["kvstack-entrypoint"]\n' in text
    assert "COPY packaging/healthcheck.py /usr/local/lib/kvstack-healthcheck.py\n" in text
    assert re.search(r"^HEALTHCHECK .*\\\n *CMD .*/kvstack-healthcheck.py\"\]$", text, re.MULTILINE)


_BIN = "/opt/kvstack/bin"


@pytest.mark.parametrize(
    ("words", "url"),
    [
        (f"{_BIN}/python {_BIN}/kvstore --data-dir=/x", "http://127.0.0.1:2379/health"),
        (f"{_BIN}/python {_BIN}/kvstore", "http://127.0.0.1:2379/health"),
        (f"{_BIN}/python {_BIN}/kvstore gateway start", ""),
        (f"{_BIN}/python {_BIN}/kvstore-util snapshot", ""),
        (f"{_BIN}/python {_BIN}/kvstack up", "https://127.0.0.1:6443/readyz"),
        (f"{_BIN}/python {_BIN}/kvstack apiserver -v=2", "https://127.0.0.1:6443/readyz"),
        (f"{_BIN}/python {_BIN}/kvstack scheduler", "https://127.0.0.1:10259/healthz"),
        (f"{_BIN}/python {_BIN}/kvstack certs", ""),
        ("/bin/sleep 5", ""),
    ],
)
def test_health_is_asked_where_the_command_answers(words: str, url: str) -> None:
    url_of = runpy.run_path(str(HEALTHCHECK))["url_of"]
    assert url_of(words.split(), {}) == url
    assert url_of(words.split(), {"KVSTACK_HEALTH_URL": "http://x/"}) == "http://x/"


class _Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/well" else 503)
        self.send_header("Content-Length", "0")
        self.end_headers()

    @override
    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def address() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), _Page)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def _check(url: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, str(HEALTHCHECK)],
        capture_output=True,
        text=True,
        check=False,
        env={"KVSTACK_HEALTH_URL": url},
    )
    assert done.stderr == ""
    return done.returncode, done.stdout


def test_the_health_check_tells_well_from_ill(address: str) -> None:
    assert _check(f"{address}/well") == (0, "")
    code, text = _check(f"{address}/ill")
    assert code == 1
    assert text == f"{address}/ill: HTTP Error 503: Service Unavailable\n"


def test_the_licence_is_named_everywhere() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    crate = tomllib.loads((ROOT / "kvstore/native/Cargo.toml").read_text())["package"]
    dockerfile = (ROOT / "Dockerfile").read_text()
    assert project["license"] == crate["license"] == "Apache-2.0"
    assert f'licenses="{project["license"]}"' in dockerfile
    assert project["authors"] == [{"name": "The kvstack authors"}]
    assert project["license-files"] == ["LICENSE", "NOTICE"]
    assert "Apache License\n" in (ROOT / "LICENSE").read_text()
    notice = (ROOT / "NOTICE").read_text()
    assert notice.startswith("kvstack\nCopyright 2026 The kvstack authors\n")


def test_the_paths_in_notice_exist() -> None:
    """What only a build writes is among the files of the package instead."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packaged = project["tool"]["setuptools"]["package-data"]
    built = {f"{package}/{file}" for package, files in packaged.items() for file in files}
    paths = re.findall(r"[\w.-]+(?:/[\w.-]+)+", (ROOT / "NOTICE").read_text())
    assert len(paths) > 15
    missing = {path for path in paths if not (ROOT / path.rstrip(".")).exists()}
    assert missing <= built
    assert "kvstack/component/THIRD-PARTY-LICENSES.txt" in built.intersection(paths)


def test_licences_of_crates_are_collected_from_their_sources(tmp_path: Path) -> None:
    source = tmp_path / "registry" / "src" / "index"
    for name, file, text in (
        ("one-1.2.0", "LICENSE-MIT", "Copyright (c) One"),
        ("one-1.2.0", "LICENSE-APACHE", "a long text"),
        ("two-0.1.0+zstd", "COPYING", "Copyright Two"),
    ):
        (source / name).mkdir(parents=True, exist_ok=True)
        (source / name / file).write_text(text)
    cargo = tmp_path / "cargo"
    lines = (
        "kvstore-native v0.0.0 (/x)|Apache-2.0",
        "two v0.1.0+zstd|MIT",
        "one v1.2.0|MIT OR Apache-2.0",
        "one v1.2.0|MIT OR Apache-2.0",
    )
    cargo.write_text("#!/bin/sh\n" + "".join(f"echo '{line}'\n" for line in lines))
    cargo.chmod(0o755)
    done = subprocess.run(
        ["sh", str(ROOT / "packaging" / "crate-licenses.sh")],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": os.environ["PATH"], "CARGO": str(cargo), "CARGO_HOME": str(tmp_path)},
    )
    heads = re.findall(r"^======== (.*)$", done.stdout, re.MULTILINE)
    assert heads == ["one 1.2.0: MIT OR Apache-2.0", "two 0.1.0+zstd: MIT"]
    assert "Copyright (c) One" in done.stdout
    assert "Copyright Two" in done.stdout
    assert "a long text" not in done.stdout


GNU, MUSL = "x86_64-unknown-linux-gnu", "x86_64-unknown-linux-musl"
DYNAMIC = "-C target-feature=-crt-static"
NOTED = "$@ / $RUSTFLAGS / $CARGO_TARGET_X86_64_UNKNOWN_LINUX_MUSL_RUSTFLAGS / $PYO3_NO_PYTHON"


def build_crate(
    tmp_path: Path, targets: str, *words: str, **more: str
) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """Run crate.py with a cargo that notes how it is called; return that, too."""
    (tmp_path / "packaging").mkdir()
    for name in ("crate.py", "crate-licenses.sh"):
        (tmp_path / "packaging" / name).write_bytes((ROOT / "packaging" / name).read_bytes())
    cargo = tmp_path / "bin" / "cargo"
    cargo.parent.mkdir()
    zigbuild = cargo.with_name("cargo-zigbuild")
    for program, name in ((cargo, ""), (zigbuild, "zigbuild ")):
        program.write_text(f'#!/bin/sh\necho "{name}{NOTED}" >> {tmp_path}/called\n')
        program.chmod(0o755)
    for folder in ("release", f"{GNU}/release", f"{MUSL}/release"):
        library = tmp_path / "kvstore" / "native" / "target" / folder / "libkvstore_native.so"
        library.parent.mkdir(parents=True)
        library.write_text(folder)
    done = subprocess.run(
        [sys.executable, str(tmp_path / "packaging" / "crate.py"), *words],
        capture_output=True,
        text=True,
        check=False,
        env={
            "PATH": f"{cargo.parent}:{os.environ['PATH']}",
            "HOME": str(tmp_path),
            "KVSTORE_CRATE_TARGET": targets,
            **more,
        },
    )
    called = tmp_path / "called"
    return done, called.read_text().splitlines() if called.exists() else []


@pytest.mark.parametrize(
    ("target", "command", "folder", "flags"),
    [
        ("", "rustc", "release", " /  / "),
        (f"{GNU}.2.28", f"zigbuild rustc --target={GNU}.2.28", f"{GNU}/release", " /  / 1"),
        (MUSL, f"zigbuild rustc --target={MUSL}", f"{MUSL}/release", f" / {DYNAMIC} / 1"),
    ],
)
def test_the_crate_is_built_for_the_system_that_is_named(
    target: str, command: str, folder: str, flags: str, tmp_path: Path
) -> None:
    done, called = build_crate(tmp_path, target, str(tmp_path / "out.so"))
    assert done.returncode == 0, done.stdout + done.stderr
    built, listed = called
    rest = "--lib --crate-type=cdylib --release --locked"
    rest = f"{rest} --manifest-path {tmp_path}/kvstore/native/Cargo.toml"
    assert built == f"{command} {rest} / {flags}"
    assert listed.startswith("tree --locked")
    assert (tmp_path / "out.so").read_text() == folder
    assert (tmp_path / "THIRD-PARTY-LICENSES.txt").exists()


@pytest.mark.parametrize(("first", "folder"), [(f"{GNU}.2.28", GNU), (MUSL, MUSL)])
def test_the_crate_is_built_for_several_systems_at_once(
    first: str, folder: str, tmp_path: Path
) -> None:
    """By the same command whichever the file is for, or cargo would build much of it again."""
    out = tmp_path / "out.so"
    done, called = build_crate(tmp_path, f"{first} {GNU}.2.28 {MUSL}", str(out))
    assert done.returncode == 0, done.stdout + done.stderr
    assert called[0].startswith(f"zigbuild rustc --target={GNU}.2.28 --target={MUSL} --lib ")
    assert called[0].endswith(f" /  / {DYNAMIC} / 1")
    assert out.read_text() == f"{folder}/release"


def test_flags_of_the_user_are_kept_for_musl(tmp_path: Path) -> None:
    _, called = build_crate(tmp_path, MUSL, str(tmp_path / "out.so"), RUSTFLAGS="-C opt-level=1")
    assert f" / -C opt-level=1 {DYNAMIC} / " in called[0]
