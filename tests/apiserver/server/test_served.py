"""Which versions are served."""

import pytest

from kvstack.apimachinery.schema.load import load
from kvstack.apiserver.server.served import served_rows
from kvstack.component.errors import ConfigError


def served(**config: str) -> set[str]:
    plain = {name.replace("__", "/"): text for name, text in config.items()}
    return {each.group_version for each in served_rows(load(), plain)}


def test_alpha_and_beta_are_off() -> None:
    versions = served()
    assert {"v1", "apps/v1", "autoscaling/v2"} <= versions
    assert not any("alpha" in each or "beta" in each for each in versions)


def test_a_level_is_turned_on_and_one_version_off() -> None:
    rows = served_rows(load(), {"api/beta": "true", "certificates.k8s.io/v1beta1": "false"})
    versions = {each.group_version for each in rows}
    assert "coordination.k8s.io/v1beta1" in versions
    assert "certificates.k8s.io/v1beta1" not in versions
    assert not any("alpha" in each for each in versions)


def test_one_version_is_turned_on() -> None:
    assert served(**{"coordination.k8s.io/v1beta1": "true"}) - served() == {
        "coordination.k8s.io/v1beta1"
    }


def test_all_but_core_is_turned_off() -> None:
    assert served(api__all="false", api__v1="true") == {"v1"}


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("foo/v1", "true", "unknown api groups foo/v1"),
        ("apps/v9", "true", "unknown api groups apps/v9"),
        ("apps/v1", "x", "invalid value of runtime-config apps/v1=x"),
        ("v1", "false", "the core group v1 cannot be disabled"),
        ("api/all", "false", "the core group v1 cannot be disabled"),
    ],
)
def test_what_cannot_be_is_refused(name: str, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        served_rows(load(), {name: text})
