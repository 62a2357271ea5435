"""What is said where a package of an extra is missing, and that nothing else needs it."""

import subprocess
import sys
from pathlib import Path

import pytest

from kvstack.component.errors import ConfigError
from kvstore import cli, extras
from kvstore.extras import EXTRAS, require

ROOT = Path(__file__).parents[3]
HIDING = """
import sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {hidden!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)
sys.meta_path.insert(0, Hidden())
"""
PACKAGES = {"kubernetes_validate", "opentelemetry"}


def python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run code where no package of an extra can be imported."""
    return subprocess.run(
        [sys.executable, "-c", HIDING.format(hidden=PACKAGES) + code, *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        timeout=60,
    )


@pytest.mark.parametrize("extra", EXTRAS)
def test_nothing_is_said_of_what_is_installed(extra: str) -> None:
    require(extra, "--flag")


def test_what_is_missing_is_named_with_its_flag_and_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = ("kvstore.nothing", "no_such_package.inner", "kvstore.errors")
    monkeypatch.setattr(extras, "EXTRAS", {"some": missing})
    with pytest.raises(ConfigError) as raised:
        require("some", "--flag")
    assert str(raised.value) == (
        "--flag needs packages that are not installed (kvstore.nothing, no_such_package.inner): "
        "pip install 'kvstack[some]'"
    )


def test_tracing_without_its_packages_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    data = tmp_path / "data"
    run = "from kvstore.cli import main; sys.exit(main(sys.argv[1:]))"
    done = python(run, f"--data-dir={data}", "--enable-distributed-tracing")
    assert done.returncode == 1
    assert "--enable-distributed-tracing needs packages" in done.stderr
    assert "pip install 'kvstack[tracing]'" in done.stderr
    assert not data.exists()


def test_every_program_loads_without_any_extra() -> None:
    code = (
        "from importlib import import_module\n"
        "from kvstack.cli import COMMANDS\n"
        "for each in [*(c.module for c in COMMANDS.values()), 'kvstore.server.run',\n"
        "             'kvstore.util.commands', 'kvstack.apiserver.server.assembly',\n"
        "             'kvstack.agents.kubelet.real_node', 'kvstack.pytest_plugin']:\n"
        "    import_module(each)\n"
    )
    done = python(code)
    assert (done.returncode, done.stderr) == (0, "")


def test_numpy_is_loaded_by_the_scheduler_alone() -> None:
    code = (
        "from importlib import import_module\n"
        "for each in ['kvstack.agents.standalone.stack', 'kvstack.apiserver.server.assembly',\n"
        "             'kvstack.agents.manager.process', 'kvstack.agents.kubelet.command',\n"
        "             'kvstack.agents.kubelet.real_node', 'kvstore.server.run']:\n"
        "    import_module(each)\n"
        "assert 'numpy' not in sys.modules, each\n"
        "import kvstack.agents.scheduler.live.process\n"
        "assert 'numpy' in sys.modules\n"
    )
    done = python(code)
    assert (done.returncode, done.stderr) == (0, "")


def test_help_needs_no_extra(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--help"]) == 0
    assert "--enable-distributed-tracing" in capsys.readouterr().out
