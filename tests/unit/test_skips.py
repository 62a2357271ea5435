"""The budget of skips: every reason in the sources is known, and a run with another one fails."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.skips import Allowed, is_allowed, is_known
from tests.support.sources.skip_reasons import GAP, reasons

ROOT = Path(__file__).parents[2]
PLUGIN = "from tests.skip_budget import *\n"


def test_every_reason_in_the_sources_is_known() -> None:
    unknown = [
        f"{path.relative_to(ROOT)}:{line}: {reason}"
        for folder in ("tests", "bench/micro")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for line, reason in reasons(path)
        if reason != GAP
        and not is_known(reason.replace(GAP, "/x.h" if "is not" in reason else "x"))
    ]
    assert not unknown, "reasons for skipping stand in tests/support/skips.py"


def test_a_reason_counts_only_where_something_is_missing() -> None:
    rows = (Allowed("no tool.*", lambda _: False), Allowed("no network", lambda _: True))
    assert is_allowed("Skipped: no network", rows)
    assert not is_allowed("no tool here", rows)
    assert not is_allowed("no network today", rows)


@pytest.mark.parametrize(
    ("reason", "is_right"),
    [
        ("there is no no-such-program", True),
        ("there is no sh", False),
        ("there is no /no/such/file", True),
        ("there is no /etc/passwd", False),
        ("/no/such.h is not installed", True),
        ("could not import 'no_such_package': No module named 'no_such_package'", True),
        ("could not import 'pytest': No module named 'pytest'", False),
        ("this C library has no such_function: it is missed", True),
        ("this C library has no malloc", False),
        ("needs /usr/bin/python3", False),
    ],
)
def test_what_is_here_excuses_no_skip(reason: str, *, is_right: bool) -> None:
    assert is_allowed(reason) is is_right


def test_a_variable_that_is_set_excuses_no_skip(monkeypatch: pytest.MonkeyPatch) -> None:
    reason = "no other API server: KVSTACK_TEST_KUBE_APISERVER names none"
    monkeypatch.delenv("KVSTACK_TEST_KUBE_APISERVER", raising=False)
    assert is_allowed(reason)
    monkeypatch.setenv("KVSTACK_TEST_KUBE_APISERVER", "/usr/local/bin/kube-apiserver")
    assert not is_allowed(reason)


@pytest.mark.parametrize(
    ("reason", "code"), [("HTTP/1.1 has one request at a time", 0), ("I do not feel like it", 1)]
)
def test_a_run_with_a_skip_that_is_not_allowed_fails(
    reason: str, code: int, tmp_path: Path
) -> None:
    (tmp_path / "conftest.py").write_text(PLUGIN)
    (tmp_path / "test_one.py").write_text(
        "import pytest\n\ndef test_runs():\n    pass\n\n"
        f"def test_skips():\n    pytest.skip({reason!r})\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert ("skips that tests/support/skips.py does not allow" in done.stdout) == bool(code)
