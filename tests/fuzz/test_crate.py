"""Any bytes at the crate, by cargo-fuzz: its framing, the API server's port, the client's decoder.

`make long` gives each target a minute, `make fuzz FUZZ_S=…` as long as is said. One worker runs all
of them, as they are built together.
"""

import contextlib
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TARGETS = sorted(each.stem for each in (ROOT / "kvstore/native/fuzz/fuzz_targets").glob("*.rs"))
SECONDS = 60
BUILD_S_MAX = 1800
"""The first target waits for the crate and what it needs to be compiled, instrumented."""


def missing() -> str:
    """Return what `make fuzz` lacks; empty: nothing."""
    for words, text in (
        (("cargo", "fuzz", "--version"), "there is no cargo-fuzz"),
        (("cargo", "+nightly", "--version"), "there is no nightly toolchain for cargo-fuzz"),
    ):
        program = shutil.which(words[0])
        if program is None:
            return "there is no cargo"
        done = subprocess.run([program, *words[1:]], capture_output=True, check=False)
        if done.returncode:
            return text
    return ""


def test_every_target_is_fuzzed() -> None:
    declared = (ROOT / "Makefile").read_text().split("FUZZ_TARGETS ?= ", 1)[1].split("\n", 1)[0]
    assert sorted(declared.split()) == TARGETS
    assert {"web", "decode", "client"} <= set(TARGETS)


@pytest.mark.long
@pytest.mark.timeout(BUILD_S_MAX + 4 * SECONDS)
@pytest.mark.xdist_group("cargo-fuzz")
@pytest.mark.parametrize("target", TARGETS)
def test_no_bytes_end_the_crate(target: str, tmp_path: Path) -> None:
    if lacking := missing():
        pytest.skip(lacking)
    log = tmp_path / "log"
    with log.open("wb") as output:
        made = subprocess.Popen(
            ["make", "fuzz", f"FUZZ_S={SECONDS}", f"FUZZ_TARGETS={target}"],
            cwd=ROOT,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # so that all that it started ends with it
        )
        try:
            made.wait(BUILD_S_MAX + 2 * SECONDS)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(made.pid, signal.SIGKILL)
    text = log.read_text(errors="replace")
    assert made.returncode == 0, text[-4000:]
    assert "Done " in text, text[-4000:]  # libFuzzer's last line: it ran until its time was over
