"""A chart as operators bring it: a definition, webhooks, a policy, permissions and an object.

Its webhooks are this process's. What the chart forbids and allows changes with its values, goes
back with a rollback, and ends with the release; its definition stays, as helm leaves it.
"""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from kvstack.agents.standalone.in_memory.background import BackgroundCluster, Settings
from kvstack.agents.standalone.parts import NODE
from kvstack.apimachinery.objects.json_object import Object
from tests.agents.helm.test_chart import Programs
from tests.apiserver.stories.clients import ClientsMissingError, clients
from tests.apiserver.support.hook_server import HookServer, allowing, patching, reviewing

pytestmark = [pytest.mark.e2e, pytest.mark.slow]


CHART = Path(__file__).parent / "operator_chart"
ACCOUNT = "system:serviceaccount:shops:one-operator"


def refuses_empty(review: Object) -> Object:
    """Refuse widgets of size 0."""
    if review["request"]["object"]["spec"]["size"]:
        return allowing()
    return reviewing(allowed=False, status={"message": "a widget must not be empty"})


class Release:
    """One release of the chart, and widgets beside it."""

    def __init__(self, programs: Programs, hooks: HookServer) -> None:
        self.programs = programs
        self._given = ("--set", f"hooks.url={hooks.url}", "--set", f"hooks.ca={hooks.ca}")

    def helm(self, command: str, *values: str, flags: tuple[str, ...] = ()) -> None:
        given = [word for value in values for word in ("--set", value)]
        self.programs.helm(command, "one", str(CHART), *self._given, *given, *flags)

    def refusal_of(self, name: str, **spec: object) -> str:
        """Make a widget; return what refuses it, empty if nothing does."""
        obj = {
            "apiVersion": "shops.example.com/v1",
            "kind": "Widget",
            "metadata": {"name": name},
            "spec": spec,
        }
        path = self.programs.home / f"{name}.json"
        path.write_text(json.dumps(obj))
        return self.programs.run("kubectl", "create", "-f", str(path)).stderr

    def may_delete(self) -> bool:
        """Whether the operator's account may delete widgets."""
        done = self.programs.run("kubectl", "auth", "can-i", "delete", "widgets", "--as", ACCOUNT)
        return done.stdout.strip() == "yes"

    def size(self) -> int:
        """The size of the widget that the chart brings."""
        size: int = self.programs.get("widget", "one")["spec"]["size"]
        return size


@pytest.mark.parametrize(
    "release",
    [pytest.param("1.28", id="helm 3", marks=pytest.mark.long), pytest.param("1.37", id="helm 4")],
)
def test_a_chart_that_extends_the_cluster(release: str, tmp_path: Path) -> None:
    try:
        folder = clients(release)
    except ClientsMissingError as missing:
        pytest.skip(str(missing))
    settings = Settings(nodes=0, without=frozenset({NODE}))
    with HookServer() as hooks, BackgroundCluster(tmp_path / "cluster", settings) as cluster:
        hooks.answers["/color"] = patching({"op": "add", "path": "/spec/color", "value": "red"})
        hooks.answers["/empty"] = refuses_empty
        found = Release(Programs(folder, cluster, tmp_path), hooks)
        for stage in STAGES:
            stage(found)


def _install(release: Release) -> None:
    release.helm("install", "size=3", flags=("--create-namespace",))
    widget = release.programs.get("wd", "one")
    assert widget["spec"] == {"color": "red", "size": 3}
    assert widget["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "Helm"
    assert 'admission webhook "empty.shops.example.com" denied' in release.refusal_of(
        "empty", size=0
    )
    assert "a widget has at most size 10" in release.refusal_of("large", size=11)
    assert not release.may_delete()


def _upgrade(release: Release) -> None:
    release.helm("upgrade", "size=15", "sizeMax=20", "mayDelete=true")
    assert release.size() == 15
    assert not release.refusal_of("large", size=11)
    assert release.may_delete()


def _upgrade_that_is_refused(release: Release) -> None:
    """The policy and its object change together; what is refused leaves the release failed."""
    programs = release.programs
    done = programs.run("helm", "upgrade", "one", str(CHART), "--reuse-values", "--set", "size=0")
    assert done.returncode != 0
    assert "a widget must not be empty" in done.stderr
    assert programs.releases() == [("one", "3", "failed")]
    assert release.size() == 15


def _roll_back(release: Release) -> None:
    release.programs.helm("rollback", "one", "1")
    assert release.programs.releases() == [("one", "4", "deployed")]
    assert release.size() == 3
    assert "a widget has at most size 10" in release.refusal_of("larger", size=11)
    assert not release.may_delete()


def _uninstall(release: Release) -> None:
    release.programs.helm("uninstall", "one")
    names = [each["metadata"]["name"] for each in release.programs.get("widgets")["items"]]
    assert names == ["large"]
    assert not release.refusal_of("empty", size=0)
    assert release.programs.get("widget", "empty")["spec"] == {"color": "blue", "size": 0}
    assert "a widget has a color" in release.refusal_of("plain", size=1, color="none")


STAGES: tuple[Callable[[Release], None], ...] = (
    _install,
    _upgrade,
    _upgrade_that_is_refused,
    _roll_back,
    _uninstall,
)
