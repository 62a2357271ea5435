"""The loader of the crate: a library that was built from other sources is refused."""

import subprocess
import sys

import pytest

from kvstack.component import crate

LOAD = """
import sys, types
library = types.ModuleType("kvstack.component._native")
library.__file__ = "/some/where/_native.abi3.so"
{setting}
sys.modules[library.__name__] = library
import kvstack.component
kvstack.component._native = library
import kvstack.component.crate
"""


@pytest.mark.parametrize(
    ("setting", "found"),
    [("", "None"), (f"library.ABI = {crate.ABI + 1}", str(crate.ABI + 1))],
    ids=["built before there was a number", "another number"],
)
def test_a_library_of_other_sources_is_refused(setting: str, found: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOAD.format(setting=setting)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 1
    (last,) = done.stderr.strip().splitlines()[-1:]
    assert last == (
        "kvstack.component.crate.CrateMismatchError: /some/where/_native.abi3.so has ABI "
        f"{found}, these sources need {crate.ABI}: rebuild it with "
        "'python packaging/crate.py /some/where/_native.abi3.so', or remove it to do without"
    )


def test_without_a_library_nothing_is_loaded() -> None:
    """As where there is no Rust: what is imported is None, and why is said."""
    load = """
import sys
sys.modules["kvstack.component._native"] = None
from kvstack.component import crate
assert not crate.is_available() and crate.Server is crate.HttpServer is crate.Client is None
assert crate.Decoder is crate.encode_entries is crate.ROW_SUMS is crate.read_yaml is None
print(crate.MISSING)
"""
    done = subprocess.run(
        [sys.executable, "-c", load], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert "kvstack.component._native" in done.stdout
