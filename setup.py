"""Builds the native transport (kvstore/native) when a Rust toolchain is there, and does without it
when not: then the server serves the same API through grpcio. Everything else is in pyproject.toml.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

CRATE = Path("kvstore/native")
LIBRARY = "libkvstore_native.dylib" if sys.platform == "darwin" else "libkvstore_native.so"


class BuildCrate(build_ext):
    """Runs cargo in the place of a C compiler."""

    def build_extension(self, ext: Extension) -> None:
        """Build the crate and put the library where the module is looked for."""
        problem = build()
        target = Path(self.get_ext_fullpath(ext.name))
        # One of an older build would be mistaken for this one, and a running server may have it
        # mapped: it keeps the old file, where a copy over it would take its code away.
        target.unlink(missing_ok=True)
        if problem:
            print(f"kvstore: no native transport, grpcio serves instead: {problem}", flush=True)
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(CRATE / "target" / "release" / LIBRARY, target)


def build() -> str:
    """Run cargo; return what was wrong, or nothing."""
    if os.environ.get("KVSTORE_NATIVE") == "0":
        return "KVSTORE_NATIVE=0 asks for that"
    cargo = shutil.which("cargo") or shutil.which("cargo", path=Path("~/.cargo/bin").expanduser())
    if cargo is None:
        return "there is no Rust toolchain (cargo)"
    command = [cargo, "build", "--release", "--locked", "--manifest-path", f"{CRATE}/Cargo.toml"]
    environment = {
        "PYO3_PYTHON": sys.executable,
        **os.environ,
    }
    environment["CARGO_TARGET_DIR"] = str((CRATE / "target").resolve())
    try:
        subprocess.run(command, check=True, env=environment)
    except (OSError, subprocess.CalledProcessError) as error:
        return str(error)
    return ""


setup(
    ext_modules=[
        Extension("kvstore.transport._native", sources=[], optional=True, py_limited_api=True)
    ],
    cmdclass={"build_ext": BuildCrate},
)
