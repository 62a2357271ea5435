"""Kubernetes' own conformance tests, run by the program `e2e.test` of a release.

    suite = Suite(Program(Path("e2e.test"), kubectl, kubeconfig, prefix), reports)
    tests = suite.tests()                       all that conformance asks for, by their names
    tests = suite.tests(focus="Netpol")         others, by a pattern of ginkgo
    results = suite.run(tests, processes=2)     in batches side by side, then the serial ones alone

Every test that was asked for has a result: one that the program did not come to is run again in a
batch of its own, and is `lost` if that gives none either.
"""

import json
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, NamedTuple

PASSED: Final = "passed"
LOST: Final = "lost"
CONFORMANCE: Final = r"\[Conformance\]"
"""Which of the program's tests are run, unless others are asked for."""
_ALONE: Final = re.compile(r"\[(Serial|Disruptive)\]")
_BATCH: Final = 6
_TEST_MIN: Final = 5
_SLOW_MIN: Final = 20
_GRACE_S: Final = 30


class ConformanceTest(NamedTuple):
    """One test of the suite."""

    name: str
    is_serial: bool

    @property
    def is_slow(self) -> bool:
        """Whether the suite itself says so."""
        return "[Slow]" in self.name

    @property
    def group(self) -> str:
        """Return the special interest group whose test it is."""
        return self.name.partition("]")[0].removeprefix("[")


class Result(NamedTuple):
    """How a test ended."""

    state: str
    seconds: float
    message: str
    log: Path


class Program(NamedTuple):
    """The program of the tests, and what it is given."""

    file: Path
    kubectl: Path
    kubeconfig: Path
    prefix: Sequence[str] = ()
    """Stands before the command, e.g. to enter a network namespace."""


class Suite:
    """Runs tests and keeps their reports."""

    def __init__(self, program: Program, reports: Path) -> None:
        """reports: the directory for reports and logs; it may exist."""
        self._program = program
        self._reports = reports
        self._batches = 0
        self._is_over = False
        self._running: set[subprocess.Popen[bytes]] = set()
        reports.mkdir(parents=True, exist_ok=True)

    def tests(self, match: str = "", focus: str = CONFORMANCE) -> list[ConformanceTest]:
        """Return the tests that the program has for a focus and whose names match.

        Raises RuntimeError.
        """
        report, log = self._reports / "list.json", self._reports / "list.log"
        flags = (f"--ginkgo.focus={focus}", "--ginkgo.dry-run", "--provider=skeleton")
        code = self._call((*flags, f"--ginkgo.json-report={report}"), log, limit_s=300)
        if not report.exists():
            raise RuntimeError(f"{self._program.file} lists no tests (exit code {code}): see {log}")
        return [
            ConformanceTest(
                name, spec.get("IsSerial", False) or "[Serial]" in name or "[Disruptive]" in name
            )
            for name, spec in _specs(report)
            if spec["State"] == PASSED and re.search(match, name)
        ]

    def run(self, tests: Sequence[ConformanceTest], processes: int) -> dict[str, Result]:
        """Run tests, those that are not serial by several processes; return results by name."""
        found: dict[str, Result] = {}
        parallel = [each for each in tests if not each.is_serial]
        with ThreadPoolExecutor(processes) as pool:
            try:
                for results in pool.map(self._run_whole, _batches(parallel)):
                    found |= results
            except BaseException:  # also Ctrl-C: nothing more is begun
                self._is_over = True
                pool.shutdown(wait=False, cancel_futures=True)
                for process in list(self._running):
                    process.kill()
                raise
        for batch in _batches([each for each in tests if each.is_serial]):
            found |= self._run_whole(batch)
        return found

    def _run_whole(self, batch: Sequence[ConformanceTest]) -> dict[str, Result]:
        """Run a batch until each of its tests has a result, in the end each alone."""
        log, found = self._run(batch)
        left = [each for each in batch if each.name not in found]
        if self._is_over:
            return found
        if len(batch) == 1:
            return found or {batch[0].name: Result(LOST, 0.0, "the program gave no result", log)}
        parts = [left] if 1 < len(left) < len(batch) else [[each] for each in left]
        for part in parts:
            found |= self._run_whole(part)
        return found

    def _run(self, batch: Sequence[ConformanceTest]) -> tuple[Path, dict[str, Result]]:
        self._batches += 1
        stem = self._reports / f"{self._batches:03d}-{batch[0].group}"
        log, report = stem.with_suffix(".log"), stem.with_suffix(".json")
        minutes = sum(_SLOW_MIN if each.is_slow else _TEST_MIN for each in batch)
        flags = (
            f"--kubeconfig={self._program.kubeconfig}",
            f"--kubectl-path={self._program.kubectl}",
            "--provider=skeleton",
            "--ginkgo.v",
            "--ginkgo.no-color",
            f"--ginkgo.timeout={minutes}m",
            f"--ginkgo.grace-period={_GRACE_S}s",
            f"--ginkgo.json-report={report}",
            *(f"--ginkgo.focus={re.escape(each.name)}" for each in batch),
        )
        self._call(flags, log, limit_s=minutes * 60 + 10 * _GRACE_S)
        names = {each.name for each in batch}
        return log, {
            name: _result(spec, log)
            for name, spec in (_specs(report) if report.exists() else ())
            if name in names and (spec["State"] != "skipped" or spec.get("Failure"))
        }

    def _call(self, flags: Sequence[str], log: Path, limit_s: float) -> int:
        command = [*self._program.prefix, str(self._program.file), *flags]
        with log.open("wb") as out:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=self._reports
            )
            self._running.add(process)
            try:
                return process.wait(limit_s)
            except subprocess.TimeoutExpired:  # its own limit did not end it
                return -1
            finally:
                self._running.discard(process)
                process.kill()
                process.wait()


def _batches(tests: Sequence[ConformanceTest]) -> Iterator[list[ConformanceTest]]:
    """Yield tests of one group together, slow ones first and each alone."""
    groups: dict[str, list[ConformanceTest]] = {}
    for each in tests:
        if each.is_slow:
            yield [each]
        else:
            groups.setdefault(each.group, []).append(each)
    for group in groups.values():
        for first in range(0, len(group), _BATCH):
            yield group[first : first + _BATCH]


def _specs(report: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    for suite in json.loads(report.read_text()):
        for spec in suite["SpecReports"] or ():
            if spec["LeafNodeType"] == "It":
                texts = spec["ContainerHierarchyTexts"] or ()
                yield " ".join((*texts, spec["LeafNodeText"])), spec


def _result(spec: Mapping[str, Any], log: Path) -> Result:
    failure = spec.get("Failure") or {}
    return Result(spec["State"], spec["RunTime"] / 1e9, failure.get("Message", ""), log)


def table(tests: Sequence[ConformanceTest], results: Mapping[str, Result]) -> list[str]:
    """Return how many passed by group, and each test that did not, with why and where."""
    lines = []
    for group in (*sorted({each.group for each in tests}), ""):
        own = [each for each in tests if group in ("", each.group)]
        passed = sum(results[each.name].state == PASSED for each in own)
        lines.append(f"{group or 'all':24} {passed} of {len(own)} passed")
    for each in tests:
        result = results[each.name]
        if result.state != PASSED:
            message = result.message.strip().partition("\n")[0][:300]
            lines.append(f"{result.state}: {each.name}: {message} ({result.log})")
    return lines
