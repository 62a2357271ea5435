"""Marks a wheel that was built for musl (Alpine Linux), of which auditwheel knows nothing on glibc.

    python packaging/musl_wheel.py WHEEL DIRECTORY

writes the wheel to the directory with the platform musllinux_1_2, if its libraries need nothing but
musl itself. Otherwise it reports the libraries and exits with 1.
"""

import io
import subprocess
import sys
import tempfile
from pathlib import Path
from zipfile import ZipFile

from elftools.elf.elffile import ELFFile

MUSL = {"libc.so"}
"""The name of musl for a linker, which its loader resolves to itself."""


def main() -> int:
    """Mark one wheel."""
    wheel, directory = Path(sys.argv[1]), Path(sys.argv[2])
    for name, needed in needs(wheel).items():
        if strange := needed - MUSL:
            print(f"{wheel}: {name} needs {', '.join(sorted(strange))}", file=sys.stderr)
            return 1
    platform = wheel.stem.rpartition("-")[2]
    tag = platform.replace("linux_", "musllinux_1_2_", 1)
    with tempfile.TemporaryDirectory() as work:
        copy = Path(work, wheel.name)
        copy.write_bytes(wheel.read_bytes())
        command = [sys.executable, "-m", "wheel", "tags", "--remove", f"--platform-tag={tag}", copy]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        (marked,) = Path(work).iterdir()
        (directory / marked.name).write_bytes(marked.read_bytes())
    return 0


def needs(wheel: Path) -> dict[str, set[str]]:
    """Return the libraries of a wheel, and which ones each of them needs."""
    libraries = {}
    with ZipFile(wheel) as archive:
        for name in archive.namelist():
            if name.endswith(".so"):
                dynamic = ELFFile(io.BytesIO(archive.read(name))).get_section_by_name(".dynamic")
                tags = dynamic.iter_tags("DT_NEEDED") if dynamic else ()
                libraries[name] = {tag.needed for tag in tags}
    return libraries


if __name__ == "__main__":
    sys.exit(main())
