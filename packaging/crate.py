"""Builds the native transport (kvstore/native) with cargo, and reports progress.

    python packaging/crate.py TARGET    build, and copy the library to the file TARGET, with the
                                        licences of its crates beside it

Exit code 0: it was built. 1: it was not, and the last line has the reason; grpcio is then used. The
variable KVSTORE_NATIVE=0 asks for no build at all. KVSTORE_CRATE_TARGET names another system to
build for, as cargo-zigbuild does: x86_64-unknown-linux-gnu.2.28 (with that glibc), …-linux-musl.
Of several, with spaces between, the first is that of the file, and all are built: they share what
runs on this machine (build scripts, macros) and keep all processors busy until the end. Name the
same ones each time, since cargo would build much again where one is missing.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

CRATE = Path(__file__).resolve().parent.parent / "kvstore" / "native"
LICENSES = "THIRD-PARTY-LICENSES.txt"
LICENSES_OF_CRATES = Path(__file__).resolve().parent / "crate-licenses.sh"
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
        return "no Rust toolchain (cargo) is installed"
    others = os.environ.get("KVSTORE_CRATE_TARGET", "").split()
    triples = [each.partition(".")[0] for each in others]
    libraries = [CRATE / "target" / each / "release" / LIBRARY for each in triples or ("",)]
    if not all(each.exists() for each in libraries):
        print(
            "kvstore: building the native transport in Rust. This is done once and takes one to "
            "five minutes, depending on the machine; NATIVE=0 does without it.",
            flush=True,
        )
    command = ["cargo-zigbuild", "rustc"] if others else [cargo, "rustc"]
    command += [f"--target={each}" for each in sorted(set(others))]
    # The module alone: with a library for other crates, cargo would not optimize across crates, and
    # what is built here would not serve the crate's tests.
    command += ["--lib", "--crate-type=cdylib"]
    command += ["--release", "--locked", "--manifest-path", f"{CRATE}/Cargo.toml"]
    environment = _environment(sorted(set(triples)))
    try:
        subprocess.run(command, check=True, env=environment)
    except (OSError, subprocess.CalledProcessError) as error:
        return str(error)
    target.parent.mkdir(parents=True, exist_ok=True)
    problem = _write_licenses(target.with_name(LICENSES), {**environment, "CARGO": cargo})
    if not problem:
        shutil.copyfile(libraries[0], target)
    return problem


def _environment(triples: list[str]) -> dict[str, str]:
    """Return cargo's variables; triples: the other systems that it builds for."""
    environment = {**os.environ, "CARGO_TARGET_DIR": str(CRATE / "target")}
    if not triples:
        return {"PYO3_PYTHON": sys.executable, **environment}
    environment["PYO3_NO_PYTHON"] = "1"  # the stable ABI needs none, least of all this system's
    for triple in triples:
        # musl's targets are linked statically, which a module cannot be. RUSTFLAGS itself would
        # have all that runs on this machine built again, too.
        if triple.endswith("-musl"):
            name = f"CARGO_TARGET_{triple.upper().replace('-', '_')}_RUSTFLAGS"
            flags = f"{environment.get(name, '')} -C target-feature=-crt-static".strip()
            environment[name] = flags
            if "RUSTFLAGS" in environment:  # would be read instead
                environment["RUSTFLAGS"] += " -C target-feature=-crt-static"
    return environment


def _write_licenses(file: Path, environment: dict[str, str]) -> str:
    """Write the licences of the crates in the library; return the error, or an empty text."""
    try:
        completed = subprocess.run(
            ["sh", str(LICENSES_OF_CRATES)],  # noqa: S607 - at build time
            check=True,
            cwd=CRATE,
            env=environment,
            stdout=subprocess.PIPE,
        )
    except (OSError, subprocess.CalledProcessError) as error:
        return str(error)
    file.write_bytes(completed.stdout)
    return ""


def main(arguments: list[str]) -> int:
    """Run the command; return the exit code."""
    problem = build(Path(arguments[0]))
    if problem:
        print(f"kvstore: no native transport, grpcio serves instead: {problem}", flush=True)
    return 1 if problem else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
