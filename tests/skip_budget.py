"""Fails a run in which a test was skipped for a reason that is not allowed; see support/skips.py.

A part of tests/conftest.py. With workers (-n), the process that gathers their reports judges.
"""

import pytest

from tests.support.skips import is_allowed

__all__ = ["pytest_collectreport", "pytest_runtest_logreport", "pytest_sessionfinish",
           "pytest_terminal_summary"]  # fmt: skip

_refused: dict[str, str] = {}


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _judge(report)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    _judge(report)


def _judge(report: pytest.TestReport | pytest.CollectReport) -> None:
    if not report.skipped or hasattr(report, "wasxfail"):
        return
    found = report.longrepr
    reason = str(found[2]) if isinstance(found, tuple) else str(found)
    if not is_allowed(reason):
        _refused[report.nodeid] = reason


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    if _refused and not hasattr(session.config, "workerinput"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _refused:
        terminalreporter.section("skips that tests/support/skips.py does not allow")
        for test, reason in _refused.items():
            terminalreporter.line(f"{test}: {reason}")
