"""The server's log: one JSON object a line, as in etcd.

    log = open_logger(("default",), "info", "json")
    log.info("ready to serve client requests", member_id="8e9e05c52164694d")

    {"level":"info","ts":"2026-01-02T15:04:05.999999Z","caller":"server/boot/assemble.py:88",
     "msg":"ready to serve client requests","member_id":"8e9e05c52164694d"}

Rule: a log call never raises and never stops the server. A line that an output does not accept (a
closed terminal, a full disk) is counted in `lost_lines`. A call below the level costs one
comparison. Values are passed as fields, never put into the message; secrets are never logged. A
line is written at once, with one write.

`capture_library_logs` sends what Python libraries log to the same outputs. Rotation and the journal
are modules of their own.
"""

import json
import logging
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Final

from kvstack.component.errors import ConfigError
from kvstack.component.line_log.journal import Journal
from kvstack.component.line_log.log_rotation import Rotation
from kvstack.component.line_log.rotation import RotatedFile

LOG_LEVELS: Final = ("debug", "info", "warn", "error", "dpanic", "panic", "fatal")
JOURNAL: Final = "systemd/journal"  # among --log-outputs
LEVELS: Final = {name: number for number, name in enumerate(LOG_LEVELS)}
FIELD_CHARS_MAX: Final = 16_384  # of one text; a longer one is cut, and its length is logged

_STDERR: Final = 2
Field = object  # str, numbers, bool, None, bytes, and lists and dicts of them; else its str()

_NAMES: Final = tuple(LEVELS)
_PACKAGE: Final = str(Path(__file__).resolve().parents[2]) + os.sep
_DEBUG, _INFO, _WARN, _ERROR, _FATAL = (
    LEVELS[name] for name in ("debug", "info", "warn", "error", "fatal")
)


class LineLogger:
    """Writes lines of at least its level to its outputs; may be used from any thread."""

    __slots__ = ("_as_json", "_files", "_journal", "_level", "_owned", "_rotated", "lost_lines")

    def __init__(
        self, descriptors: Sequence[int], level: str, *, as_json: bool = True, owned: bool = False
    ) -> None:
        """Log to file descriptors; owned ones are closed by close()."""
        self._files = list(descriptors)
        self._level = LEVELS[level]
        self._as_json = as_json
        self._owned = list(descriptors) if owned else []
        self._rotated: RotatedFile | None = None
        self._journal: Journal | None = None
        self.lost_lines = 0

    def enabled(self, level: str) -> bool:
        """Return whether lines of level are written; for fields that are expensive to make."""
        return LEVELS[level] >= self._level

    def debug(self, msg: str, **fields: Field) -> None:
        """Log details that matter only for debugging."""
        if self._level <= _DEBUG:
            self._emit(_DEBUG, msg, fields)

    def info(self, msg: str, **fields: Field) -> None:
        """Log a normal event that operators need to know about."""
        if self._level <= _INFO:
            self._emit(_INFO, msg, fields)

    def warning(self, msg: str, **fields: Field) -> None:
        """Log something unusual that the server can tolerate."""
        if self._level <= _WARN:
            self._emit(_WARN, msg, fields)

    def error(self, msg: str, **fields: Field) -> None:
        """Log a failure; there is none in normal operation."""
        if self._level <= _ERROR:
            self._emit(_ERROR, msg, fields)

    def fatal(self, msg: str, **fields: Field) -> None:
        """Log why the process ends; the caller ends it."""
        self._emit(_FATAL, msg, fields)

    def at(self, level: str, msg: str, caller: str, **fields: Field) -> None:
        """Log on behalf of other code, whose file and line are given as caller."""
        if LEVELS[level] >= self._level:
            self._write(LEVELS[level], msg, caller, fields)

    def close(self) -> None:
        """Close the files this log opened; later lines are lost."""
        for descriptor in self._owned:
            os.close(descriptor)
        self._files = [descriptor for descriptor in self._files if descriptor not in self._owned]
        self._owned = []
        for output in (self._rotated, self._journal):
            if output is not None:
                output.close()
        self._rotated = self._journal = None

    def _emit(self, level: int, msg: str, fields: dict[str, Field]) -> None:
        self._write(level, msg, _caller(sys._getframe(2)), fields)  # noqa: SLF001

    def _write(self, level: int, msg: str, caller: str, fields: dict[str, Field]) -> None:
        layout = _json_line if self._as_json else _console_line
        line = layout(_NAMES[level], timestamp(time.time_ns()), caller, msg, fields)
        data = line.encode("utf-8", "backslashreplace")
        for descriptor in self._files:
            try:
                os.write(descriptor, data)
            except OSError:
                self.lost_lines += 1
        if self._rotated is not None or self._journal is not None:
            self._write_elsewhere(level, caller, data)

    def _write_elsewhere(self, level: int, caller: str, data: bytes) -> None:
        try:
            if self._rotated is not None:
                self._rotated.write(data)
            if self._journal is not None:
                self._journal.write(_NAMES[level], caller, data)
        except OSError:
            self.lost_lines += 1
            if self._journal is not None:
                self._files = self._files or [_STDERR]  # etcd falls back to it, too


def open_logger(
    outputs: Sequence[str], level: str, log_format: str, rotation: Rotation | None = None
) -> LineLogger:
    """Open a log to outputs: default and stderr, stdout, systemd/journal, or paths.

    With rotation, the one path is a file that is rotated when it is full. ConfigError names an
    output that cannot be opened.
    """
    descriptors: list[int] = []
    rotated: RotatedFile | None = None
    journal: Journal | None = None
    for output in outputs:
        if output in {"default", "stderr"}:
            descriptors.append(2)
        elif output == "stdout":
            descriptors.append(1)
        elif output == JOURNAL:
            journal = Journal()
        elif rotation is not None:
            try:
                rotated = RotatedFile(Path(output), rotation)
            except OSError as error:
                raise ConfigError(f"--log-outputs {output}: {error.strerror}") from error
        else:
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
            try:
                descriptors.append(os.open(output, flags, 0o644))
            except OSError as error:
                raise ConfigError(f"--log-outputs {output}: {error.strerror}") from error
    log = LineLogger(descriptors, level, as_json=log_format == "json")
    log._owned = [descriptor for descriptor in descriptors if descriptor > 2]  # noqa: SLF001
    log._rotated, log._journal = rotated, journal  # noqa: SLF001
    return log


def capture_library_logs(log: LineLogger) -> None:
    """Send the warnings and errors of Python libraries to log, instead of to stderr as text."""
    root = logging.getLogger()
    root.handlers[:] = [_LibraryHandler(log)]
    root.setLevel(logging.WARNING)


def timestamp(unix_ns: int) -> str:
    """Return UTC time as 2006-01-02T15:04:05.999999Z."""
    unix_s, rest_ns = divmod(unix_ns, 1_000_000_000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(unix_s)) + f".{rest_ns // 1000:06d}Z"


class _LibraryHandler(logging.Handler):
    def __init__(self, log: LineLogger) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:  # type: ignore[explicit-override]
        level = "error" if record.levelno >= logging.ERROR else "warn"
        fields: dict[str, Field] = {"logger": record.name}
        if record.exc_info and record.exc_info[1] is not None:
            fields["error"] = repr(record.exc_info[1])
        caller = f"{record.filename}:{record.lineno}"
        self._log.at(level, record.getMessage(), caller, **fields)


def _caller(frame: FrameType) -> str:
    path = frame.f_code.co_filename
    if path.startswith(_PACKAGE):
        path = path[len(_PACKAGE) :]
    else:
        path = os.sep.join(path.split(os.sep)[-2:])
    return f"{path}:{frame.f_lineno}"


def _json_line(level: str, ts: str, caller: str, msg: str, fields: dict[str, Field]) -> str:
    parts = [f'{{"level":"{level}","ts":"{ts}","caller":{_dumps(caller)},"msg":{_dumps(msg)}']
    parts.extend(f",{_dumps(name)}:{_field(value)}" for name, value in fields.items())
    parts.append("}\n")
    return "".join(parts)


def _console_line(level: str, ts: str, caller: str, msg: str, fields: dict[str, Field]) -> str:
    line = f"{ts}\t{level}\t{caller}\t{msg}"
    if fields:
        line += "\t{" + ", ".join(f"{_dumps(n)}: {_field(v)}" for n, v in fields.items()) + "}"
    return line.replace("\n", "\\n") + "\n"


_ENCODER: Final = json.JSONEncoder(
    ensure_ascii=False, separators=(",", ":"), default=lambda value: _plain(value)
)


def _dumps(text: str) -> str:
    if len(text) > FIELD_CHARS_MAX:
        text = f"{text[:FIELD_CHARS_MAX]}... ({len(text)} characters)"
    return _ENCODER.encode(text)


def _field(value: Field) -> str:
    """Encode one field's value as JSON; any value can be encoded."""
    if isinstance(value, str):
        return _dumps(value)
    try:
        encoded = _ENCODER.encode(value)
    except (TypeError, ValueError, RecursionError):
        return _dumps(f"{type(value).__name__} that cannot be logged")
    if len(encoded) > FIELD_CHARS_MAX:
        return _dumps(encoded)
    return encoded


def _plain(value: object) -> str:
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "backslashreplace")
    return str(value)
