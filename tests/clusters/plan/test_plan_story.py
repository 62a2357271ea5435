"""The story with which docs/plan.md begins."""

from pathlib import Path

import pytest

from tests.clusters.support.stories import play


@pytest.mark.slow
@pytest.mark.e2e
def test_the_story_of_the_page(tmp_path: Path) -> None:
    said = play("plan.md", tmp_path)
    image, scale, drain, again, at_last = said[5:]
    assert image.startswith("~ deployment shop/web")
    assert "image 1.4 → 1.5" in image
    assert "+ 3 pods in shop" in image
    assert scale.startswith("**Plan:** 1 by you")
    assert "replicas 3 → 5" in scale
    assert "~ node hollow-1" in drain
    assert "stays pending: 0/1 nodes are available" in drain
    assert again.partition("assumed:")[0] == image.partition("assumed:")[0]
    assert at_last == "registry.example/web:1.4"
