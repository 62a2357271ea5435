"""The snapshot of a real cluster that stands among the tests."""

import json
import lzma
from pathlib import Path
from typing import Any

DATA = Path(__file__).resolve().parents[1] / "data"
REVISION = 390


def real_snapshot(directory: Path) -> Path:
    """Unpack it into a directory."""
    path = directory / "kubernetes.db"
    path.write_bytes(lzma.decompress((DATA / "kubernetes-1.37.1.db.xz").read_bytes()))
    return path


def real_objects() -> dict[str, dict[str, Any]]:
    """Return what its server answered, by key."""
    packed = (DATA / "kubernetes-1.37.1.objects.json.xz").read_bytes()
    found: dict[str, dict[str, Any]] = json.loads(lzma.decompress(packed))
    return found
