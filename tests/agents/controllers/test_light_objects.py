"""What controllers' informers hold of ConfigMaps and Secrets."""

from copy import deepcopy
from typing import Any

import orjson
import pytest

from kvstack.agents.client.api import Api, Event
from kvstack.agents.client.built_in import CONFIG_MAPS, SECRETS
from kvstack.agents.client.in_process import InProcess
from kvstack.agents.client.informer import Informer
from kvstack.agents.client.resource_type import ResourceType
from kvstack.agents.controllers.light_objects import LEFT_OUT, LIGHT
from kvstack.agents.controllers.options import Options
from kvstack.agents.controllers.table import controllers
from kvstack.component.certs.certificates import new_authority
from kvstack.component.clock import SystemClock
from kvstack.component.http.serving.local_transport import LocalTransport
from tests.support.list_log import ListLog

DATA = {"a": "b"}


def make_object(namespace: str, name: str, version: str = "1", **more: object) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace, "uid": name, "resourceVersion": version}
    return {"metadata": metadata, "data": dict(DATA), **more}


@pytest.mark.parametrize(
    ("resource", "obj", "is_kept"),
    [
        (CONFIG_MAPS, make_object("shop", "kube-root-ca.crt"), True),
        (CONFIG_MAPS, make_object("kube-public", "cluster-info"), True),
        (CONFIG_MAPS, make_object("shop", "cluster-info"), False),
        (CONFIG_MAPS, make_object("shop", "settings", binaryData={"c": "ZA=="}), False),
        (SECRETS, make_object("shop", "t", type="kubernetes.io/service-account-token"), True),
        (SECRETS, make_object("kube-system", "t", type="bootstrap.kubernetes.io/token"), True),
        (SECRETS, make_object("shop", "release", type="helm.sh/release.v1"), False),
        (SECRETS, make_object("shop", "plain"), False),
    ],
)
def test_data_that_no_controller_reads_are_left_out(
    resource: ResourceType,
    obj: dict[str, Any],
    is_kept: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    transport = InProcess(LocalTransport(), "")
    informer = Informer(
        Api(transport), resource, SystemClock(), lambda: 0.5, ListLog(), lighten=LIGHT[resource]
    )
    changed = deepcopy(obj)
    changed["metadata"]["resourceVersion"] = "2"
    informer.replace([deepcopy(obj)], "1")
    [listed] = informer.store
    informer.apply([Event("MODIFIED", changed)])
    [watched] = informer.store
    for held, version in ((listed, "1"), (watched, "2")):
        assert held["metadata"] == {**obj["metadata"], "resourceVersion": version}
        assert held.get("type") == obj.get("type")
        assert (held["data"] == DATA) == is_kept
        if not is_kept:
            assert {held[name] for name in ("data", "binaryData") if name in held} == {LEFT_OUT}


def test_an_object_without_its_data_is_not_written_back() -> None:
    obj = make_object("shop", "settings")
    LIGHT[CONFIG_MAPS](obj)
    with pytest.raises(TypeError):
        orjson.dumps(obj)
    with pytest.raises(AttributeError):
        obj["data"].get("a")


def test_which_controllers_see_config_maps_and_secrets() -> None:
    """Whoever is added reads data that are kept, or has them kept."""
    options = Options(service_account_key=new_authority("ca", 0.0).key, root_ca="PEM")
    every = controllers(options, "*,bootstrap-signer-controller,token-cleaner-controller")
    assert {
        each.identity.name
        for each in every
        if LIGHT.keys() & {*each.reads, *(watch.resource for watch in each.watches)}
    } == {
        "root-ca-certificate-publisher-controller",
        "bootstrap-signer-controller",
        "token-cleaner-controller",
        "serviceaccount-token-controller",
        "legacy-serviceaccount-token-cleaner-controller",
    }
