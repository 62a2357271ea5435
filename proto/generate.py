"""Generate the messages' modules from the .proto files: `python -m proto.generate [--check]`.

    proto/kvstore/wire/gen/x.proto  ──protoc──►  kvstore/wire/gen/x_pb2.py, x_pb2.pyi
    and the same for each other package of PACKAGES

Only messages and their type stubs: the transports have their own idea of services. With --check
nothing is written; the exit code is 1 and each file that is missing, stale or left over is named.
The generated files are committed, so running the product needs no protoc.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
SOURCES: Final = ROOT / "proto"
PACKAGES: Final = (
    Path("kvstore/wire/gen"),
    Path("agents/kubelet/runtime/cri/gen"),
    Path("agents/kubelet/device_plugins/gen"),
    Path("agents/kubelet/csi/gen"),
    Path("tests/support/csi/gen"),
)


def generate(target: Path) -> None:
    """Write the modules of all .proto files below target; raise SystemExit if protoc refuses."""
    from grpc_tools import protoc  # here, so that --help works without it

    include = Path(protoc.__file__).parent / "_proto"
    names = sorted(
        str(path.relative_to(SOURCES))
        for package in PACKAGES
        for path in (SOURCES / package).glob("*.proto")
    )
    code = protoc.main(
        [
            "protoc",
            f"-I{SOURCES}",
            f"-I{include}",
            f"--python_out={target}",
            f"--pyi_out={target}",
            *names,
        ]
    )
    if code != 0:
        raise SystemExit(f"protoc failed with exit code {code}")


def differences(fresh: Path, committed: Path) -> list[str]:
    """Return, sorted, the names of generated files that are not the same in both folders."""
    made = {path.name: path.read_bytes() for path in fresh.glob("*_pb2.py*")}
    kept = {path.name: path.read_bytes() for path in committed.glob("*_pb2.py*")}
    return sorted(name for name in made.keys() | kept.keys() if made.get(name) != kept.get(name))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m proto.generate", description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="write nothing; exit 1 and name each stale file"
    )
    check: bool = parser.parse_args(argv).check
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder))
        stale = 0
        for package in PACKAGES:
            stale += _update(Path(folder), package, check=check)
    return 1 if check and stale else 0


def _update(folder: Path, package: Path, *, check: bool) -> int:
    """Write what is stale of a package, or name it; return how many files are."""
    fresh, committed = folder / package, ROOT / package
    stale = differences(fresh, committed)
    for name in stale:
        made = fresh / name
        if check:
            print(f"{package / name} is stale; run `make proto`", file=sys.stderr)
        elif made.exists():
            (committed / name).write_bytes(made.read_bytes())
            print(f"wrote {package / name}")
        else:
            (committed / name).unlink()
            print(f"removed {package / name}")
    return len(stale)


if __name__ == "__main__":
    sys.exit(main())
