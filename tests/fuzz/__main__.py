"""Any bytes at readers of the API server, guided by what they reach.

    python -m tests.fuzz --seconds 60                 all targets, so long each
    python -m tests.fuzz --seconds 600 cel yaml       these alone

A fault ends its target; the bytes stand in a file of the corpus folder, whose name is told. The
corpus is kept, so that a later run goes on. Needs atheris (tests/fuzz/requirements.txt), which
there is for some versions of CPython on Linux alone.
"""

import argparse
import subprocess
import sys
from pathlib import Path

from tests.fuzz.targets import DICTIONARY, SEEDS, TARGETS

INPUT_BYTES_MAX = 4096
SLOW_S = 20
"""An input that takes so long is a fault."""
MEMORY_MB = 2048


def main() -> int:
    """Run the command; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--corpus", type=Path, default=Path(".fuzz"))
    parser.add_argument("names", nargs="*")
    given = parser.parse_args()
    unknown = sorted(set(given.names) - TARGETS.keys())
    if unknown:
        parser.error(f"{unknown[0]} is no target; there are {', '.join(TARGETS)}")
    failed = [
        name for name in given.names or TARGETS if not _run(name, given.corpus, given.seconds)
    ]
    sys.stdout.write(f"failed: {', '.join(failed)}\n" if failed else "no faults\n")
    return 1 if failed else 0


def _run(name: str, corpus: Path, seconds: int) -> bool:
    """Fuzz one target in a process of its own; return whether it found nothing."""
    folder = corpus / name
    folder.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(SEEDS[name]):
        (folder / f"seed-{number}").write_bytes(seed)
    words = corpus / "dictionary"
    words.write_text("".join(f'"{word.decode()}"\n' for word in DICTIONARY))
    command = [
        sys.executable, "-m", "tests.fuzz.child", name, str(folder),
        f"-max_total_time={seconds}", f"-max_len={INPUT_BYTES_MAX}", f"-timeout={SLOW_S}",
        f"-rss_limit_mb={MEMORY_MB}", f"-dict={words}", f"-artifact_prefix={corpus}/{name}-",
        "-print_final_stats=1", "-verbosity=0",
    ]  # fmt: skip
    sys.stdout.write(f"{name}:\n")
    sys.stdout.flush()
    return subprocess.run(command, check=False).returncode == 0


if __name__ == "__main__":
    sys.exit(main())
