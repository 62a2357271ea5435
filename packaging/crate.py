"""Builds the native transport (kvstore/native) with cargo, and says what it does meanwhile.

    python packaging/crate.py TARGET    build, and copy the library to the file TARGET

Exit code 0: it is there. 1: it is not, and the last line says why; grpcio then serves instead. The
variable KVSTORE_NATIVE=0 asks for no build at all.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

CRATE = Path(__file__).resolve().parent.parent / "kvstore" / "native"
LIBRARY = "libkvstore_native.dylib" if sys.platform == "darwin" else "libkvstore_native.so"


def build(target: Path) -> str:
    """Build the library and copy it to `target`; return what was wrong, or nothing."""
    # One of an older build would be mistaken for this one, and a running server may have it
    # mapped: it keeps the old file, where a copy over it would take its code away.
    target.unlink(missing_ok=True)
    if os.environ.get("KVSTORE_NATIVE") == "0":
        return "KVSTORE_NATIVE=0 asks for that"
    cargo = shutil.which("cargo") or shutil.which("cargo", path=Path("~/.cargo/bin").expanduser())
    if cargo is None:
        return "there is no Rust toolchain (cargo)"
    library = CRATE / "target" / "release" / LIBRARY
    if not library.exists():
        print(
            "kvstore: building the native transport in Rust. This is done once and takes one to "
            "five minutes, depending on the machine; NATIVE=0 does without it.",
            flush=True,
        )
    command = [cargo, "build", "--release", "--locked", "--manifest-path", f"{CRATE}/Cargo.toml"]
    environment = {"PYO3_PYTHON": sys.executable, **os.environ}
    environment["CARGO_TARGET_DIR"] = str(CRATE / "target")
    try:
        subprocess.run(command, check=True, env=environment)
    except (OSError, subprocess.CalledProcessError) as error:
        return str(error)
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(library, target)
    return ""


def main(arguments: list[str]) -> int:
    """Build as the command line says; return the exit code."""
    problem = build(Path(arguments[0]))
    if problem:
        print(f"kvstore: no native transport, grpcio serves instead: {problem}", flush=True)
    return 1 if problem else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
