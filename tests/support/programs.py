"""Programs of this machine, of which a test has some alone.

monkeypatch.setenv("PATH", path_of(tmp_path, "ip", "iptables"))
monkeypatch.setenv("PATH", path_of(tmp_path, "ip", iptables="iptables-legacy"))
"""

import shutil
import subprocess
from pathlib import Path


def path_of(directory: Path, *names: str, **instead: str) -> str:
    """Return a PATH with those of these programs that the machine has.

    instead: programs (their names with _ for -), and which is run for each: one that looks at its
    name sees that by which it is run.
    """
    programs = directory / "programs"
    programs.mkdir()
    others = {name.replace("_", "-"): other for name, other in instead.items()}
    for name, other in {**dict.fromkeys(names), **others}.items():
        found = shutil.which(other or name)
        if found is not None:
            (programs / name).symlink_to(Path(found).resolve() if other else found)
    return str(programs)


def is_static(path: Path) -> bool:
    """Whether a program is there and needs no libraries: ldd fails then."""
    return (
        path.exists()
        and subprocess.run(["ldd", path], check=False, capture_output=True).returncode != 0
    )
