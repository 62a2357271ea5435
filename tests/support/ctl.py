"""etcdctl played on a server: one command after another, everything it printed kept as text.

    $ put k v --prev-kv          the command, placeholders filled in
    OK                           its stdout
    ! Error: …                   its stderr, a mark before each line
    exit 0

The transcripts of the same play on two servers are compared. What cannot be equal is replaced by a
name first; DIFFERENCES is the whole list of it. Members' ids, terms, log indexes and revisions are
not in it: servers started with the same advertised peer URL and fed the same commands agree there.
"""

import re
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import NamedTuple, Self

from tests.support.servers import ETCDCTL, Server

TIMEOUT_S = 60.0


class Difference(NamedTuple):
    """A pattern, and what stands for all that matches it."""

    why: str
    pattern: str
    name: str


DIFFERENCES = (
    Difference("3.5.1 and 3.7.1", r"(?<![\d.])3\.[57]\.1(?![\d.])", "<version>"),
    Difference("the database files differ", r'("?[dD][bB]Size\w*" ?: ?)\d+', r"\1<size>"),
    Difference("the same in words", r"\b[\d.]+ [kM]?B\b", "<size>"),
    Difference("time passes", r"\b[\d.]+(ms|µs|s)\b", "<time>"),
    Difference("time, in health as JSON", r'("took" ?: ?)"[^"]*"', r"\1<time>"),
    Difference("time, in log lines", r'("ts":)("[^"]*"|[\d.]+)', r"\1<time>"),
    Difference("what is left of a lease", r'("?[tT][tT][lL]" ?: ?)\d+', r"\1<ttl>"),
    Difference("how long a copy took", r"\b(a|now|\d+ \w+) ago\b", "<time>"),
    Difference("a pointer in the client", r"\b0x[0-9a-f]{10,}(?=/)", "<pointer>"),
    Difference("the client's own port", r"(LocalAddr: '127\.0\.0\.1):\d+", r"\1:<port>"),
    Difference("leases of former plays", r"(?m)^[0-9a-f]{16}$", "<a lease>"),
    Difference("tables are as wide as their widest cell", r"-{3,}", "---"),
    Difference("the same, in cells", r" {2,}", " "),
)


_ATTACHED = re.compile(r"attached keys\(\[([^]]*)\]\)")


def plain(text: str) -> str:
    """Replace what may differ."""
    for difference in DIFFERENCES:
        text = re.sub(difference.pattern, difference.name, text)
    return _ATTACHED.sub(_in_order, text)


def _in_order(keys: re.Match[str]) -> str:
    """Return the keys of a lease in order: etcd has them in a Go map, whose order is drawn."""
    return f"attached keys([{' '.join(sorted(keys[1].split()))}])"


class Ctl:
    """etcdctl on one server, and the transcript so far."""

    def __init__(self, server: Server, *, other: Server | None = None) -> None:
        self.server = server
        self.other = other  # where a mirror goes
        self.leases: list[str] = []
        self.transcript: list[str] = []
        self.revision = self._current_revision()

    def _current_revision(self) -> int:
        done = self._run(["get", "none", "-w", "fields"], b"")
        found = re.search(rb'"Revision" : (\d+)', done.stdout)
        assert found, done
        return int(found.group(1))

    def __call__(self, command: str, *, stdin: str = "") -> str:
        """Run one command, note it, return what it printed to stdout."""
        return self.run(shlex.split(command), stdin=stdin)

    def play(self, script: str) -> None:
        """Run every line of a script; what stands after `<<<` is standard input."""
        for line in script.strip().splitlines():
            command, _, stdin = line.strip().partition(" <<< ")
            self(command, stdin=stdin.replace(r"\n", "\n"))

    def run(self, arguments: list[str], *, stdin: str = "") -> str:
        """Run one command whose words are cut apart already."""
        filled = [self.fill(word) for word in arguments]
        done = self._run(filled, self.fill(stdin).encode())
        stdout = done.stdout.decode(errors="backslashreplace")
        granted = re.search(r"lease ([0-9a-f]{16}) granted|\"(?:ID)\":(\d+)", stdout)
        if arguments[:2] == ["lease", "grant"] and granted:
            self.leases.append(granted.group(1) or f"{int(granted.group(2)):016x}")
        self.note(f"$ {shlex.join(arguments)}")
        self.note(stdout)
        self.note("".join(f"! {line}\n" for line in done.stderr.decode().splitlines()))
        self.note(f"exit {done.returncode}")
        return stdout

    def note(self, text: str) -> None:
        """Add text to the transcript."""
        text = text.replace(self.server.endpoint, "<server>")
        text = text.replace(str(self.server.data_dir), "{dir}")
        if self.other is not None:
            text = text.replace(self.other.endpoint, "<other>")
        for number, lease in enumerate(self.leases):
            text = text.replace(lease, f"<lease {number}>").replace(
                str(int(lease, 16)), f"<lease {number}>"
            )
        self.transcript += plain(text).splitlines()

    def fill(self, word: str) -> str:
        """Put in: {r+2} a revision since the play began, {lease} and {lease0} leases, {other}."""
        word = re.sub(r"\{r([+-]\d+)?\}", lambda m: str(self.revision + int(m[1] or 0)), word)
        word = re.sub(r"\{lease(\d*)\}", lambda m: self.leases[int(m[1] or -1)], word)
        word = word.replace("{dir}", str(self.server.data_dir))
        if self.other is not None:
            word = word.replace("{other}", self.other.endpoint)
        return word

    def _run(self, arguments: list[str], stdin: bytes) -> "subprocess.CompletedProcess[bytes]":
        return subprocess.run(
            [str(ETCDCTL), *self._global(), *arguments],
            input=stdin,
            capture_output=True,
            timeout=TIMEOUT_S,
            env={"PATH": "/usr/bin:/bin"},
            check=False,
        )

    def _global(self) -> list[str]:
        return [
            f"--endpoints={self.server.endpoint}",
            "--command-timeout=50s",  # of both programs alike; a busy machine needs more than 5 s
            "--dial-timeout=50s",
        ]

    def talk(self, command: str) -> "Talk":
        """Start a command that runs until it is ended."""
        words = [self.fill(word) for word in shlex.split(command)]
        self.note(f"$ {command}")
        return Talk(self, [str(ETCDCTL), *self._global(), *words])


class Talk:
    """A running etcdctl: its output and its input."""

    def __init__(self, ctl: Ctl, command: list[str]) -> None:
        self._ctl = ctl
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={"PATH": "/usr/bin:/bin"},
        )
        self._output = b""
        self._more = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        while chunk := self._process.stdout.read1(1 << 16):  # type: ignore[attr-defined]
            with self._more:
                self._output += chunk
                self._more.notify_all()

    def hears(self, text: str, *, times: int = 1) -> None:
        """Wait until text has been printed so many times."""
        wanted = self._ctl.fill(text).encode()
        deadline = time.monotonic() + TIMEOUT_S
        with self._more:
            while self._output.count(wanted) < times:
                left_s = deadline - time.monotonic()
                if left_s <= 0 or not self._reader.is_alive():
                    raise AssertionError(f"{wanted!r} not printed {times} times: {self._output!r}")
                self._more.wait(min(left_s, 0.2))

    def says(self, text: str) -> None:
        """Write a line to its standard input."""
        assert self._process.stdin is not None
        self._process.stdin.write(self._ctl.fill(text).encode() + b"\n")
        self._process.stdin.flush()

    def interrupt(self) -> None:
        """Press ^C and wait for the end."""
        self._end(signal.SIGINT)

    def wait(self) -> None:
        """Wait for the end that comes by itself."""
        self._process.wait(TIMEOUT_S)
        self._note()

    def _end(self, number: signal.Signals) -> None:
        if self._process.poll() is None:
            self._process.send_signal(number)
        self._process.wait(TIMEOUT_S)
        self._note()

    def _note(self) -> None:
        self._reader.join(TIMEOUT_S)
        output = self._output.decode(errors="backslashreplace")
        self._ctl.leases += re.findall(r"/([0-9a-f]{16})$", output, re.MULTILINE)
        self._ctl.note(output)
        self._ctl.note(f"exit {self._process.returncode}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._reader.join(TIMEOUT_S)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except BrokenPipeError:  # it ended without reading all its input
                    continue


Play = Callable[[Ctl], None]
