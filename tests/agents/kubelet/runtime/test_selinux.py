"""Whether the machine labels processes."""

from pathlib import Path

from kvstack.agents.kubelet.runtime import selinux


def test_the_kernels_interface_tells(tmp_path: Path) -> None:
    assert not selinux.is_enabled(tmp_path / "selinux")
    (tmp_path / "enforce").write_text("0")
    assert selinux.is_enabled(tmp_path)  # permissive: labels are given nevertheless
