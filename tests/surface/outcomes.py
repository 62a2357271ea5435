"""What became of each test when it ran last: kept in pytest's cache, for the table of the surface.

A part of tests/conftest.py. With workers (-n), the process that gathers their reports keeps them.
"""

from typing import Final

import pytest

KEY: Final = "surface/outcomes"
_seen: dict[str, str] = {}  # node id without parameters → "passed", "failed" or "skipped"


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    name = report.nodeid.partition("[")[0]
    if report.failed:
        _seen[name] = "failed"
    elif report.when == "call" and report.passed and _seen.get(name) != "failed":
        _seen[name] = "passed"
    elif report.skipped:
        _seen.setdefault(name, "skipped")


def pytest_sessionfinish(session: pytest.Session) -> None:
    cache = getattr(session.config, "cache", None)
    if cache is None or hasattr(session.config, "workerinput") or not _seen:
        return
    cache.set(KEY, cache.get(KEY, {}) | _seen)
