"""Builds the native transport (kvstore/native) when a Rust toolchain is there, and does without it
when not: then the server serves the same API through grpcio. Everything else is in pyproject.toml.

KVSTORE_NATIVE=0 leaves it out; KVSTORE_NATIVE=1 fails where it cannot be built, as for a wheel.
"""

import os
import subprocess
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

BUILD = Path(__file__).resolve().parent / "packaging" / "crate.py"


class BuildCrate(build_ext):
    """Runs cargo in the place of a C compiler."""

    def build_extension(self, ext: Extension) -> None:
        """Build the crate and put the library where the module is looked for."""
        target = str(Path(self.get_ext_fullpath(ext.name)).resolve())
        built = subprocess.run([sys.executable, str(BUILD), target], check=False)
        if built.returncode and os.environ.get("KVSTORE_NATIVE") == "1":
            raise SystemExit("kvstore: the native transport is asked for and cannot be built")


setup(
    ext_modules=[
        Extension("kvstore.transport._native", sources=[], optional=True, py_limited_api=True)
    ],
    cmdclass={"build_ext": BuildCrate},
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
