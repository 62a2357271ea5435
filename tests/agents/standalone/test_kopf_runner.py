"""An operator under kopf's own test runner on a cluster of the fixtures: docs/testing.md."""

import gc
import json
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kvstack.agents.standalone.in_memory.background import BackgroundCluster, Rows

pytest.importorskip("kopf")

import kopf
import kopf.testing

from tests.agents.standalone.test_pytest_plugin import call
from tests.support.waiting import wait_for

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("apiserver-libraries"),
    # kopf's server of webhooks leaves the connections that it has to the garbage collector.
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

WAIT_S = 30.0
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
HOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
GREETINGS = "/apis/example.test/v1/namespaces/default/greetings"
DEFINITION = {
    "metadata": {"name": "greetings.example.test"},
    "spec": {
        "group": "example.test",
        "scope": "Namespaced",
        "names": {"kind": "Greeting", "plural": "greetings", "singular": "greeting"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "x-kubernetes-preserve-unknown-fields": True,
                    }
                },
            }
        ],
    },
}
HANDLERS = """
import os
from pathlib import Path

import kopf

@kopf.on.login()
def login(**kwargs):
    return kopf.login_with_kubeconfig(**kwargs)

@kopf.on.startup()
def configure(settings, **_):
    pki = Path(os.environ["PKI"])
    settings.admission.managed = "operator.example.test"
    settings.admission.server = kopf.WebhookServer(
        host="127.0.0.1", cafile=pki / "ca.crt",
        certfile=pki / "apiserver.crt", pkeyfile=pki / "apiserver.key",
    )

@kopf.on.validate("example.test", "v1", "greetings")
def check(spec, **_):
    if spec.get("to") == "nobody":
        raise kopf.AdmissionError("greets nobody", code=400)

@kopf.on.create("example.test", "v1", "greetings")
def greet(spec, patch, **_):
    patch.status["said"] = "hello " + spec["to"]
"""


@pytest.fixture(scope="session")
def kvstack_prepared(kvstack_prepare: Callable[..., BackgroundCluster]) -> Rows:
    with kvstack_prepare(nodes=0) as cluster:
        call(cluster, "POST", DEFINITIONS, DEFINITION)
        return cluster.rows()


@pytest.fixture(autouse=True)
def kopf_ends() -> Iterator[None]:
    """Takes away what kopf's loop has when it ends: it does not wait for its connections' ends."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


def until(cluster: BackgroundCluster, path: str, is_so: Callable[[Any], bool]) -> None:
    def read() -> Any:
        return call(cluster, "GET", path)

    wait_for(lambda: is_so(read()), lambda: json.dumps(read()), WAIT_S)


def greeting(name: str, to: str) -> Any:
    return {
        "apiVersion": "example.test/v1",
        "kind": "Greeting",
        "metadata": {"name": name},
        "spec": {"to": to},
    }


@pytest.mark.kvstack(nodes=0)
@pytest.mark.parametrize("name", ["first", "second"])
def test_handlers_and_admission(kvstack_fork: BackgroundCluster, name: str, tmp_path: Path) -> None:
    handlers = tmp_path / "handlers.py"
    handlers.write_text(HANDLERS)
    environment = {
        "KUBECONFIG": str(kvstack_fork.kubeconfig),
        "PKI": str(kvstack_fork.ca_file.parent),
    }
    with kopf.testing.KopfRunner(
        ["run", "-A", str(handlers)],
        registry=kopf.OperatorRegistry(),
        env=environment,
        timeout=WAIT_S,
    ) as runner:
        until(kvstack_fork, HOOKS, lambda found: any(map(is_set_up, found["items"])))
        with pytest.raises(OSError, match="400"):
            call(kvstack_fork, "POST", GREETINGS, greeting(name, "nobody"))
        call(kvstack_fork, "POST", GREETINGS, greeting(name, "all"))
        until(kvstack_fork, f"{GREETINGS}/{name}", lambda found: greeting_of(found) == "hello all")
    assert runner.exit_code == 0, runner.output


def is_set_up(configuration: Any) -> bool:
    return bool(configuration.get("webhooks"))


def greeting_of(found: Any) -> str | None:
    value: str | None = found.get("status", {}).get("said")
    return value
