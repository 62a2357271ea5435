"""The program `nft`: runs transactions and returns its output.

    apply(text)     atomically; raises NftError
    problem()       why it cannot be used here; empty: it can

Calls wait for the program, and are made in threads.
"""

import os
import shutil
import subprocess
from typing import Final

_TIMEOUT_S: Final = 300.0
"""The kernel needs O(n²) for n sets without names in one transaction."""
_ERROR_CHARACTERS_MAX: Final = 500
_PROBE: Final = "kvstack-probe"


class NftError(Exception):
    """The program failed, or cannot be run."""


def is_installed() -> bool:
    """Return whether the program is installed."""
    return shutil.which("nft") is not None


def problem() -> str:
    """Return why tables cannot be made; empty: they can. Leaves nothing behind."""
    if not is_installed():
        return "the program nft is not installed"
    if os.geteuid() != 0:
        return "only root may change the rules of the machine"
    try:
        # With --check the kernel checks the transaction without applying it.
        run("--check", "-f", "-", stdin=f"add table ip {_PROBE}\n")
    except NftError as error:
        return str(error)
    return ""


def apply(text: str) -> None:
    """Apply a transaction; raises NftError."""
    run("-f", "-", stdin=text)


def run(*arguments: str, stdin: str = "") -> str:
    """Run the program and return its output; raises NftError."""
    try:
        done = subprocess.run(
            ["nft", *arguments],  # noqa: S607 - of the node's PATH
            input=stdin,
            check=False,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
        )
    except OSError as error:
        raise NftError(f"nft: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise NftError(f"nft did not end within {_TIMEOUT_S:g} s") from error
    if done.returncode != 0:
        raise NftError(f"nft: {done.stderr.strip()[:_ERROR_CHARACTERS_MAX]}")
    return done.stdout
