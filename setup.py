"""Builds the native transport (kvstore/native) if a Rust toolchain is found.

Without one the server serves the same API through grpcio. Everything else is in pyproject.toml.

KVSTORE_NATIVE=0 leaves it out, and a wheel is for any system; KVSTORE_NATIVE=1 fails where it
cannot be built, as for a wheel of one system.
"""

import os
import subprocess
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
BUILD = ROOT / "packaging" / "crate.py"
LINKED = ("agents", "apiserver")  # below kvstack: links here, folders in a source distribution

for name in LINKED:
    if not (ROOT / "kvstack" / name / "__init__.py").is_file():
        raise SystemExit(
            f"kvstack/{name} is neither a symbolic link to ../{name} nor a package; after a "
            "checkout without links: "
            f"git config core.symlinks true && git checkout -- kvstack/{name}"
        )


class BuildCrate(build_ext):
    """Runs cargo in the place of a C compiler."""

    def build_extension(self, ext: Extension) -> None:
        """Build the crate and put the library where the module is looked for."""
        target = str(Path(self.get_ext_fullpath(ext.name)).resolve())
        built = subprocess.run([sys.executable, str(BUILD), target], check=False)
        if built.returncode and os.environ.get("KVSTORE_NATIVE") == "1":
            raise SystemExit("kvstore: the native transport is asked for and cannot be built")


NATIVE = Extension("kvstack.component._native", sources=[], optional=True, py_limited_api=True)

setup(
    ext_modules=[] if os.environ.get("KVSTORE_NATIVE") == "0" else [NATIVE],
    cmdclass={"build_ext": BuildCrate},
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
