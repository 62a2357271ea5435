"""Log lines: their shape, their levels, and that nothing about them stops the server."""

import json
import logging
import os
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typing_extensions import override

from kvstack.component.errors import ConfigError
from kvstack.component.line_log import line_logger
from kvstack.component.line_log.line_logger import (
    LineLogger,
    capture_library_logs,
    open_logger,
    timestamp,
)
from kvstack.component.process.systemd import VARIABLE, notify_ready

ReadLines = Callable[[], list[str]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def logger(path: Path) -> Iterator[LineLogger]:
    logger = open_logger((str(path),), "info", "json")
    yield logger
    logger.close()


def entries(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_line_is_one_json_object_with_the_fields_in_order(logger: LineLogger, path: Path) -> None:
    logger.info("ready to serve client requests", member_id="8e9e", count=3, ok=True, none=None)
    line = path.read_text()
    assert re.fullmatch(
        r'\{"level":"info","ts":"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z",'
        r'"caller":"line_log/test_logs\.py:\d+","msg":"ready to serve client requests",'
        r'"member_id":"8e9e","count":3,"ok":true,"none":null\}\n',
        line,
    )


def test_timestamps_are_utc_with_microseconds() -> None:
    assert timestamp(0) == "1970-01-01T00:00:00.000000Z"
    assert timestamp(1_767_323_045_000_001_999) == "2026-01-02T03:04:05.000001Z"


def test_the_caller_is_named_within_the_package(
    path: Path, logger: LineLogger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_logger, "_PACKAGE", str(Path(__file__).parents[1]) + os.sep)
    logger.warning("x")
    assert str(entries(path)[0]["caller"]).startswith("line_log/test_logs.py:")


def test_callers_of_this_project_are_named_from_its_package_on(
    path: Path, logger: LineLogger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, str(path / "no-such-socket"))
    notify_ready(logger)
    assert str(entries(path)[0]["caller"]).startswith("component/process/systemd.py:")


@pytest.mark.parametrize("value", ['"quoted"', "new\nline", "ünï", "\x00\x1f", "\udc80", "\u2028"])
def test_any_text_gives_one_line_of_json(logger: LineLogger, path: Path, value: str) -> None:
    logger.info(value, field=value)
    [entry] = entries(path) if "\u2028" not in value else [json.loads(path.read_text())]
    if "\udc80" not in value:
        assert (entry["msg"], entry["field"]) == (value, value)


def test_any_value_gives_json(logger: LineLogger, path: Path) -> None:
    loop: list[object] = []
    loop.append(loop)
    error = OSError(28, "No space left on device")
    logger.info("x", a=b"k\xff", b=[1, {"c": (2,)}], d=error, e=loop, f=1.5, g={1: 2}, h={b"k": 1})
    entry = entries(path)[0]
    assert entry["a"] == "k\\xff"
    assert entry["b"] == [1, {"c": [2]}]
    assert entry["d"] == "[Errno 28] No space left on device"
    assert entry["e"] == "list that cannot be logged"
    assert entry["g"] == {"1": 2}
    assert entry["h"] == "dict that cannot be logged"


def test_long_texts_are_cut(logger: LineLogger, path: Path) -> None:
    logger.info("m" * 100_000, text="t" * 100_000, items=["i" * 100_000])
    assert path.stat().st_size < 60_000
    assert str(entries(path)[0]["text"]).endswith("... (100000 characters)")


def test_levels(path: Path) -> None:
    for level, written in (("debug", 4), ("info", 3), ("warn", 2), ("error", 1), ("fatal", 0)):
        path.unlink(missing_ok=True)
        logger = open_logger((str(path),), level, "json")
        logger.debug("d")
        logger.info("i")
        logger.warning("w")
        logger.error("e")
        assert len(entries(path)) == written
        assert logger.enabled("info") == (level in {"debug", "info"})
        logger.fatal("f")
        assert entries(path)[-1]["level"] == "fatal"
        logger.close()


def test_below_the_level_fields_are_not_looked_at(logger: LineLogger, path: Path) -> None:
    class Explosive:
        @override
        def __str__(self) -> str:
            raise AssertionError

    logger.debug("x", value=Explosive())
    assert path.read_text() == ""


def test_console_format(path: Path) -> None:
    logger = open_logger((str(path),), "info", "console")
    logger.warning("one\nline", key="v")
    logger.close()
    ts, level, caller, msg, fields = path.read_text().rstrip("\n").split("\t")
    assert (level, msg, fields) == ("warn", "one\\nline", '{"key": "v"}')
    assert caller.startswith("line_log/test_logs.py:")
    assert ts.endswith("Z")


def test_several_outputs_and_appending(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "log"
    file.write_text("before\n")
    logger = open_logger((str(file), "stderr", "stdout"), "info", "json")
    logger.info("x")
    logger.close()
    out, err = capfd.readouterr()
    assert out == err == file.read_text().removeprefix("before\n") != ""


def test_an_output_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="missing/log: No such file or directory"):
        open_logger((f"{tmp_path}/missing/log",), "info", "json")


def test_a_broken_output_is_survived_and_counted(path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    file = os.open(path, os.O_WRONLY | os.O_CREAT)
    logger = LineLogger([writer, file], "info")
    logger.info("x")
    logger.info("y")
    assert logger.lost_lines == 2
    os.close(writer)
    logger.info("z")
    assert logger.lost_lines == 3
    os.close(file)
    assert [entry["msg"] for entry in entries(path)] == ["x", "y", "z"]


def test_a_full_pipe_loses_lines_rather_than_time() -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    logger = LineLogger([writer], "info")
    for _ in range(200):
        logger.info("x" * 1000)
    assert logger.lost_lines > 0
    os.close(reader)
    os.close(writer)


def test_lines_of_several_threads_stay_whole(logger: LineLogger, path: Path) -> None:
    def talk() -> None:
        for i in range(200):
            logger.info("m", i=i, filler="x" * 300)

    threads = [threading.Thread(target=talk) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(entries(path)) == 800


def test_what_libraries_log_comes_in_the_same_shape(logger: LineLogger, path: Path) -> None:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        capture_library_logs(logger)
        library = logging.getLogger("some.library")
        library.info("not this")
        library.warning("count %d", 3)
        try:
            int("why")
        except ValueError:
            library.exception("it broke")
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
    warning, error = entries(path)
    assert (warning["level"], warning["msg"]) == ("warn", "count 3")
    assert warning["logger"] == "some.library"
    assert (error["level"], error["error"]) == (
        "error",
        "ValueError(\"invalid literal for int() with base 10: 'why'\")",
    )
    assert str(error["caller"]).startswith("test_logs.py:")


def test_a_closed_log_is_quiet(logger: LineLogger, path: Path) -> None:
    logger.close()
    logger.close()
    logger.info("x")
    assert path.read_text() == ""
