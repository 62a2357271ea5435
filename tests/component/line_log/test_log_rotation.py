"""Log files that are put aside when they are full, and the journal."""

import gzip
import json
import os
import re
import socket
import time
from pathlib import Path

import pytest

from kvstack.component.errors import ConfigError
from kvstack.component.line_log import journal
from kvstack.component.line_log.line_logger import open_logger
from kvstack.component.line_log.log_rotation import Rotation, parse_rotation
from kvstack.component.line_log.rotation import RotatedFile

LINE = b"x" * 99 + b"\n"
STAMP = r"etcd-\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d\.\d{3}\.log"


def fill(path: Path, rotation: Rotation, lines: int) -> list[str]:
    """Write lines of 100 bytes; return the names of what was put aside, the oldest first."""
    file = RotatedFile(path, rotation)
    for _ in range(lines):
        file.write(LINE)
    file.close()
    return sorted(each.name for each in path.parent.iterdir() if each != path)


def test_a_full_file_is_put_aside_and_no_line_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "etcd.log"
    aside = fill(path, Rotation(size_max_bytes=1000), 35)
    assert len(aside) == 3
    assert all(re.fullmatch(STAMP, name) for name in aside)
    assert path.read_bytes() == LINE * 5
    assert [(tmp_path / name).read_bytes() for name in aside] == [LINE * 10] * 3


def test_an_existing_file_is_continued_and_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "etcd.log"
    path.write_bytes(LINE * 8)
    path.chmod(0o640)
    fill(path, Rotation(size_max_bytes=1000), 4)
    assert path.read_bytes() == LINE * 2
    assert path.stat().st_mode & 0o777 == 0o640


def test_only_so_many_are_kept_the_newest(tmp_path: Path) -> None:
    stranger = tmp_path / "etcd-notes.log"
    stranger.write_text("mine")
    every = fill(tmp_path / "etcd.log", Rotation(1000, backups_max=2), 55)
    assert stranger.name in every
    assert len(every) == 3


def test_old_ones_are_deleted(tmp_path: Path) -> None:
    old = tmp_path / "etcd-2020-01-01T00-00-00.000.log"
    young = tmp_path / "etcd-2020-01-02T00-00-00.000.log"
    for path, days in ((old, 3.1), (young, 2.9)):
        path.write_bytes(LINE)
        os.utime(path, (time.time_ns() / 1e9 - days * 86_400,) * 2)
    fill(tmp_path / "etcd.log", Rotation(1000, age_max_days=3), 11)
    assert not old.exists()
    assert young.exists()


def test_they_are_compressed(tmp_path: Path) -> None:
    aside = fill(tmp_path / "etcd.log", Rotation(1000, compress=True), 25)
    assert all(re.fullmatch(STAMP + r"\.gz", name) for name in aside)
    assert [gzip.decompress((tmp_path / name).read_bytes()) for name in aside] == [LINE * 10] * 2


def test_a_deleted_directory_loses_lines_and_does_not_stop_the_server(tmp_path: Path) -> None:
    place = tmp_path / "logs"
    place.mkdir()
    logger = open_logger((str(place / "log"),), "info", "json", Rotation(200))
    logger.info("a" * 150)
    (place / "log").unlink()
    place.rmdir()
    logger.info("b" * 150)
    assert logger.lost_lines == 1
    logger.close()


@pytest.mark.parametrize(
    ("text", "rotation"),
    [
        ("{}", Rotation()),
        (
            '{"maxsize": 1, "maxage": 2, "maxbackups": 3, "localtime": true, "compress": true}',
            Rotation(1 << 20, 2, 3, in_local_time=True, compress=True),
        ),
        ('{"MaxSize": 2, "other": []}', Rotation(2 << 20)),
    ],
)
def test_settings(text: str, rotation: Rotation) -> None:
    assert parse_rotation(text) == rotation


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "improperly formatted log rotation config"),
        ("[" * 100_000, "improperly formatted log rotation config"),
        ("[]", "must be a JSON object"),
        ('{"maxsize": "1"}', "maxsize cannot be '1'"),
        ('{"maxsize": -1}', "maxsize cannot be -1"),
        ('{"maxage": true}', "maxage cannot be True"),
        ('{"compress": 1}', "compress cannot be 1"),
    ],
)
def test_settings_that_cannot_be_meant(text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(why)):
        parse_rotation(text)


def test_the_journal_gets_each_line_with_its_level(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "socket")
    monkeypatch.setattr(journal.Journal.__init__, "__defaults__", (path,))
    with pytest.raises(ConfigError, match="no journal at"):
        open_logger(("systemd/journal",), "info", "json")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(path)
        listening.settimeout(10)
        logger = open_logger(("systemd/journal",), "info", "json")
        logger.warning("a line", field="two\nlines")
        datagram = listening.recv(65536)
        logger.close()
    name, _, rest = datagram.partition(b"\n")
    size = int.from_bytes(rest[:8], "little")
    assert name == b"MESSAGE"
    assert json.loads(rest[8 : 8 + size])["field"] == "two\nlines"
    assert b"\nPRIORITY=4\nPACKAGE=line_log\nSYSLOG_IDENTIFIER=" in rest[8 + size :]
