"""The commands of the table: `python -m kvstack.apiserver.schema.generate [--check | --from DIR]`.

Without options the data file is written from the text tables. `--check` writes nothing; the exit
code is 1 if the file is stale. `--from DIR` first writes the text tables anew from the published
sources of a release, laid out as the Go module cache has them (see `packages`).
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from kvstack.apiserver.schema.generate.compiler import compile_tables, is_stale
from kvstack.apiserver.schema.generate.importer import import_release
from kvstack.apiserver.schema.load import DATA


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m kvstack.apiserver.schema.generate", description=__doc__
    )
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if stale")
    parser.add_argument("--from", dest="source", type=Path, metavar="DIR", help="import a release")
    options = parser.parse_args(argv)
    if options.check:
        stale = is_stale()
        if stale:
            sys.stderr.write(f"{DATA.name} is stale; run `make schema`\n")
        return int(stale)
    if options.source is not None:
        import_release(options.source)
    DATA.parent.mkdir(exist_ok=True)
    DATA.write_bytes(compile_tables())
    return 0


if __name__ == "__main__":
    sys.exit(main())
