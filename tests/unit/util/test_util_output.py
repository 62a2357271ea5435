"""What kvstore-util prints and how it ends: formats, codes, refusals of arguments, completion."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from kvstore.types import SERVER_VERSION
from kvstore.util.printers import human_bytes
from tests.support.disks.etcd_db_files import sample, write
from tests.support.util_command import Tool, process, snapshot_file


@pytest.fixture
def tool(capsys: pytest.CaptureFixture[str]) -> Tool:
    return Tool(capsys)


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    return snapshot_file(tmp_path / "s.db")


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (9, "9 B"),
        (10, "10 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (1240, "1.2 kB"),
        (9949, "9.9 kB"),
        (9999, "10 kB"),
        (24576, "25 kB"),
        (1 << 20, "1.0 MB"),
        (2 << 30, "2.1 GB"),
    ],
)
def test_sizes_read_as_etcdutl_writes_them(count: int, text: str) -> None:
    assert human_bytes(count) == text


def test_status_in_every_format(tool: Tool, snapshot: Path) -> None:
    found = json.loads(tool.done("snapshot", "status", snapshot, "-w", "json"))
    assert list(found) == ["hash", "revision", "totalKey", "totalSize", "version"]
    shown = f"{found['hash']:x}, 52, 49, {human_bytes(found['totalSize'])}, 3.7.0\n"
    assert tool.done("snapshot", "status", snapshot) == shown
    assert tool.done("-w", "fields", "snapshot", "status", snapshot) == (
        f'"Hash" : {found["hash"]}\n"Revision" : 52\n"Keys" : 49\n'
        f'"Size" : {found["totalSize"]}\n"Version" : 3.7.0\n'
    )
    table = tool.done("snapshot", "status", snapshot, "--write-out=table").splitlines()
    assert len({len(line) for line in table}) == 1
    cells = [cell.strip() for cell in table[3].strip("│").split("│")]
    assert ", ".join(cells) + "\n" == shown
    assert "TOTAL KEYS" in table[1]


def test_the_last_of_two_formats_counts_and_a_bad_one_is_refused(
    tool: Tool, snapshot: Path
) -> None:
    out = tool.done("-w", "table", "snapshot", "status", snapshot, "-w", "simple")
    assert out.count("\n") == 1
    command = ("snapshot", "status", snapshot, "-w")
    assert "protobuf not supported as output format" in tool.failed(*command, "protobuf", code=4)
    assert "unsupported output format" in tool.failed(*command, "yaml", code=4)


def test_arguments_that_cannot_be_meant(tool: Tool, snapshot: Path, tmp_path: Path) -> None:
    exactly = "requires exactly one argument"
    assert exactly in tool.failed("snapshot", "status", code=128)
    assert exactly in tool.failed("snapshot", "status", snapshot, snapshot, code=128)
    assert exactly in tool.failed("snapshot", "restore", code=128)
    for flags in (["--mark-compacted"], ["--bump-revision=5"]):
        said = tool.failed("snapshot", "restore", snapshot, *flags, code=128)
        assert "--mark-compacted required if --revision-bump > 0" in said
    assert "--bogus" in tool.failed("snapshot", "status", snapshot, "--bogus")
    assert "bogus" in tool.failed("bogus")
    assert "'1 fortnight'" in tool.failed("hashkv", snapshot, "--timeout", "1 fortnight")
    assert "--to and --out must be given together" in tool.failed(
        "migrate", "--data-dir", tmp_path, "--to", "etcd"
    )
    assert 'expected "X.Y"' in tool.failed("migrate", "--data-dir", tmp_path, "--target-version=3")
    assert 'Minimal "3.5"' in tool.failed("migrate", "--data-dir", tmp_path, "--target-version=3.4")


def test_version_and_help(tool: Tool) -> None:
    assert tool.done("version") == f"kvstore-util version: {SERVER_VERSION}\nAPI version: 3.7\n"
    for command in ([], ["snapshot"], ["snapshot", "restore"], ["dump", "wal"]):
        assert "Usage: kvstore-util" in tool.done(*command, "--help")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_name_the_command(tool: Tool, shell: str) -> None:
    assert "_KVSTORE_UTIL_COMPLETE" in tool.done("completion", shell)


def test_the_process_completes_its_own_commands() -> None:
    environment = {
        "PATH": os.environ["PATH"],
        "_KVSTORE_UTIL_COMPLETE": "bash_complete",
        "COMP_WORDS": "kvstore-util snap",
        "COMP_CWORD": "1",
    }
    done = subprocess.run(
        [sys.executable, "-m", "kvstore.util"],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        timeout=60,
    )
    assert done.stdout == "plain,snapshot\n"


def test_nothing_is_drawn_off_a_terminal_and_a_bar_on_one(tmp_path: Path) -> None:
    path = write(tmp_path / "db", sample(20_000))
    assert process("hashkv", path).stderr == ""
    terminal, its_end = pty.openpty()
    done = subprocess.run(
        [sys.executable, "-m", "kvstore.util", "hashkv", str(path)],
        stdout=subprocess.PIPE,
        stderr=its_end,
        check=True,
        env={"PATH": os.environ["PATH"], "TERM": "xterm"},
        timeout=60,
    )
    os.close(its_end)
    drawn = os.read(terminal, 1 << 16).decode()
    os.close(terminal)
    assert "hashing" in drawn
    assert done.stdout.decode() == process("hashkv", path).stdout


def test_a_closed_pipe_ends_a_dump_silently(tmp_path: Path) -> None:
    path = write(tmp_path / "db", sample(5_000))
    command = f"{sys.executable} -m kvstore.util dump state {path} | head -n 1"
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stderr == ""
    assert done.stdout.count("\n") == 1
