"""What the kernel can do is found out by trying, and nothing is left of it."""

import os
import re
from pathlib import Path

import pytest

from kvstack.agents.kubelet.runtime.process import features
from kvstack.agents.kubelet.runtime.process.features import Features
from tests.agents.support.namespaces import has_namespaces


def children() -> str:
    return Path("/proc/thread-self/children").read_text()


@pytest.mark.skipif(not has_namespaces(), reason="needs root and namespaces")
def test_nothing_is_left(tmp_path: Path) -> None:
    def state() -> tuple[object, ...]:
        # Other tests of this machine mount something at the same time.
        lines = Path("/proc/self/mounts").read_text().splitlines()
        mounts = [each for each in lines if str(tmp_path) in each]
        return sorted(os.listdir("/proc/self/fd")), children(), mounts, os.listdir(tmp_path)

    features.look(tmp_path)
    before = state()
    found = features.look(tmp_path)
    assert state() == before
    assert found.namespaces == ""
    assert found.cgroups in ("v1", "v2", "none")


def test_whoever_may_not_learns_why(tmp_path: Path) -> None:
    """Each fact is a reason, and no exception, for who may do nothing of it."""
    found = features.look(tmp_path)
    for name, reason in found.missing().items():
        assert name
        assert reason
    assert re.match(r"cgroups (v1|v2|none), ", found.summary())


def test_what_follows() -> None:
    assert Features().consequences() == []
    lacking = Features(
        cgroups="v2", idmapped_mounts="Invalid argument", seccomp="not known", nft="not installed"
    )
    assert lacking.summary() == (
        "cgroups v2, namespaces, user namespaces, device limits, openat2, iptables, "
        "no idmapped mounts (Invalid argument), no seccomp (not known), no nft (not installed)"
    )
    users, calls = lacking.consequences()
    assert "run as user 65534, or" in users
    assert users.endswith(": Invalid argument")
    assert calls.endswith("refused: not known")
