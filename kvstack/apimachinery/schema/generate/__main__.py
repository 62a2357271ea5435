"""The commands of the table: `python -m kvstack.apimachinery.schema.generate`.

Without options the data file is written from the text tables. `--check` writes nothing; the exit
code is 1 if the file is stale. `--from DIR` first writes the text tables anew from the published
sources of a release, laid out as the Go module cache has them (see `packages`).
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from kvstack.apimachinery.schema.generate.compiler import compile_internal, compile_tables
from kvstack.apimachinery.schema.generate.importer import import_release
from kvstack.apimachinery.schema.internal import DATA as INTERNAL
from kvstack.apimachinery.schema.load import DATA


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m kvstack.apimachinery.schema.generate", description=__doc__
    )
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if stale")
    parser.add_argument("--from", dest="source", type=Path, metavar="DIR", help="import a release")
    options = parser.parse_args(argv)
    if options.check:
        stale = [path for path, data in data_files().items() if _contents(path) != data]
        for path in stale:
            sys.stderr.write(f"{path.name} is stale; run `make schema`\n")
        return 1 if stale else 0
    if options.source is not None:
        import_release(options.source)
    for path, data in data_files().items():
        path.write_bytes(data)
    return 0


def data_files() -> dict[Path, bytes]:
    """Return the data files as the text tables say they are."""
    return {DATA: compile_tables(), INTERNAL: compile_internal()}


def _contents(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""


if __name__ == "__main__":
    sys.exit(main())
