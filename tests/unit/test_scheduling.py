"""What tests/scheduling.py makes of files, and that one worker of xdist runs a group."""

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.scheduling import Units, read_file

ROOT: Final = Path(__file__).parents[2]
FILES: Final = {
    "tests/a/test_fast.py": "def test_one(): ...\n",
    "tests/a/test_more.py": "pytestmark = pytest.mark.timeout(9)\n\ndef test_one(): ...\n",
    "tests/a/test_slow.py": "pytestmark = [\n    pytest.mark.slow,\n]\n\ndef test_one(): ...\n",
    "tests/a/test_shared.py": '@pytest.fixture(scope="module")\n@pytest.mark.slow\n',
    "tests/b/test_one.py": 'pytestmark = [\n  pytest.mark.xdist_group("g"),\n]\n',
    "tests/b/test_two.py": 'pytestmark = pytest.mark.xdist_group("g")\n',
}
TESTS: Final = [f"{path}::test_{name}[a@b]" for path in FILES for name in ("one", "two", "three")]


@pytest.fixture
def units(tmp_path: Path) -> Units:
    for path, text in FILES.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    return Units(tmp_path)


def test_files_groups_and_slow_tests_are_units(units: Units) -> None:
    assert {units.of(each) for each in TESTS} == {
        "tests/a/test_fast.py",
        "tests/a/test_more.py",
        "tests/a/test_shared.py",
        "tests/a/test_slow.py::test_one[a@b]",
        "tests/a/test_slow.py::test_two[a@b]",
        "tests/a/test_slow.py::test_three[a@b]",
        "g",
    }


def test_every_unit_is_given_out_once_slow_ones_earlier(units: Units) -> None:
    ordered = units.ordered(TESTS)
    assert sorted(ordered) == sorted({units.of(each) for each in TESTS})
    assert ordered[0] == "g"
    assert ordered[-1] == "tests/a/test_more.py"
    assert units.ordered([]) == []


def test_marks_of_the_whole_file_count() -> None:
    text = '@pytest.mark.xdist_group("one")\ndef test_a(): ...\n'
    assert read_file(text).group == ""
    assert read_file('pytestmark = [pytest.mark.xdist_group("one")]\n').group == "one"


@pytest.mark.slow
def test_a_worker_runs_all_tests_of_a_unit(tmp_path: Path) -> None:
    """Nothing else would fail if xdist gave tests out otherwise."""
    (tmp_path / "conftest.py").write_text(
        "from tests.scheduling import pytest_xdist_make_scheduler\n"
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    for group, files in (("one", "ab"), ("two", "cd")):
        for name in files:
            (tmp_path / f"test_{name}.py").write_text(
                "import os\nimport pytest\n"
                f'pytestmark = pytest.mark.xdist_group("{group}")\n'
                f"@pytest.mark.parametrize('number', range(4))\n"
                "def test_it(number):\n"
                f"    with open({str(tmp_path / group)!r}, 'a') as file:\n"
                "        file.write(os.environ['PYTEST_XDIST_WORKER'] + '\\n')\n"
            )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadgroup", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert "16 passed" in done.stdout, done.stdout
    workers = [(tmp_path / group).read_text().split() for group in ("one", "two")]
    assert [len(each) for each in workers] == [8, 8]
    assert [len(set(each)) for each in workers] == [1, 1]
    assert workers[0][0] != workers[1][0]
