import pytest

from kvstore.wire.versions import Version, is_change, parse_cluster_version, parse_version


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("3.7.1", Version(3, 7, 1)),
        ("3.7.0-rc.0+git", Version(3, 7, 0)),
        ("3.7.0+a-b", Version(3, 7, 0)),
    ],
)
def test_versions(text: str, version: Version) -> None:
    assert parse_version(text) == version


@pytest.mark.parametrize(
    "text", ["", "3", "3.7", "3.7.", "3.7.x", "3.7.1.2", "not_decided", " 3.7.1"]
)
def test_no_versions(text: str) -> None:
    with pytest.raises(ValueError, match="invalid version"):
        parse_version(text)


def test_a_cluster_version_has_no_patch() -> None:
    assert parse_cluster_version("3.6") == parse_cluster_version("3.6.9") == Version(3, 6)
    assert str(parse_cluster_version("3.6")) == "3.6.0"
    with pytest.raises(ValueError, match="invalid version"):
        parse_cluster_version("3")


@pytest.mark.parametrize(
    ("before", "after", "allowed"),
    [
        ("3.6.0", "3.7.0", True),
        ("3.0.0", "3.7.1", True),
        ("3.7.0", "3.6.0", True),
        ("3.7.0", "3.5.0", False),
        ("3.7.0", "3.7.1", False),
        ("3.7.0", "4.0.0", False),
    ],
)
def test_changes(before: str, after: str, *, allowed: bool) -> None:
    assert is_change(parse_version(before), parse_version(after)) is allowed
