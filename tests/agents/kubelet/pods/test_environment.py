"""Variables of containers, and contents of volumes."""

from typing import Any

import pytest

from kvstack.agents.kubelet.pods import files
from kvstack.agents.kubelet.pods.environment import (
    Addresses,
    ConfigurationError,
    expand,
    references,
    service_variables,
    variables,
)
from tests.agents.kubelet.pods.test_worker import pod

ADDRESSES = Addresses(("10.0.0.2",), ("10.0.0.1", "fd00::1"))
OBJECTS: dict[tuple[str, str], Any] = {
    ("ConfigMap", "m"): {"data": {"k": "1", "other": "2"}},
    ("Secret", "s"): {"data": {"p": "aGVsbG8="}},
    ("ConfigMap", "gone"): None,
}


def environment_of(container: dict[str, Any], **meta: Any) -> dict[str, str]:
    obj = pod(**meta)
    return variables(obj, {"name": "a", **container}, OBJECTS, (), ADDRESSES, {"cpu": "4"})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("$(A)-x", "1-x"),
        ("$(B)", "$(B)"),
        ("$$(A)", "$(A)"),
        ("$$$$", "$$"),
        ("$A", "$A"),
        ("a$", "a$"),
        ("$(A", "$(A"),
        ("", ""),
    ],
)
def test_references_are_expanded(text: str, value: str) -> None:
    assert expand(text, {"A": "1"}) == value


def test_later_variables_win_and_see_earlier_ones() -> None:
    container = {
        "envFrom": [{"configMapRef": {"name": "m"}, "prefix": "P_"}],
        "env": [
            {"name": "P_other", "value": "own"},
            {"name": "BOTH", "value": "$(P_k)$(P_other)"},
            {"name": "S", "valueFrom": {"secretKeyRef": {"name": "s", "key": "p"}}},
        ],
    }
    assert environment_of(container) == {"P_k": "1", "P_other": "own", "BOTH": "1own", "S": "hello"}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.name", "p"),
        ("metadata.labels['x']", "1"),
        ("metadata.annotations['x']", ""),
        ("metadata.labels", 'a="b\\"c"\nx="1"'),
        ("status.podIP", "10.0.0.1"),
    ],
)
def test_fields(path: str, value: str) -> None:
    origin = {"fieldRef": {"fieldPath": path}}
    labels = {"x": "1", "a": 'b"c'}
    container = {"env": [{"name": "V", "valueFrom": origin}]}
    assert environment_of(container, labels=labels) == {"V": value}


@pytest.mark.parametrize(
    ("resource", "divisor", "value"),
    [
        ("limits.memory", "1Mi", "2"),
        ("limits.memory", "0", "1572864"),
        ("limits.cpu", "1m", "4000"),
        ("requests.cpu", "1", "0"),
    ],
)
def test_resources(resource: str, divisor: str, value: str) -> None:
    reference = {"resource": resource, "divisor": divisor}
    container = {
        "resources": {"limits": {"memory": "1.5Mi"}},
        "env": [{"name": "V", "valueFrom": {"resourceFieldRef": reference}}],
    }
    assert environment_of(container) == {"V": value}


@pytest.mark.parametrize(
    ("origin", "text"),
    [
        ({"configMapKeyRef": {"name": "gone", "key": "k"}}, 'configmap "gone" not found'),
        ({"configMapKeyRef": {"name": "m", "key": "x"}}, "couldn't find key x in ConfigMap n/m"),
        ({"secretKeyRef": {"name": "t", "key": "x"}}, 'secret "t" not found'),
    ],
)
def test_what_is_missing(origin: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        environment_of({"env": [{"name": "V", "valueFrom": origin}]})
    assert str(caught.value) == text
    ((kind, reference),) = origin.items()
    optional = {kind: {**reference, "optional": True}}
    assert environment_of({"env": [{"name": "V", "valueFrom": optional}]}) == {}


def test_services() -> None:
    service = {
        "metadata": {"name": "my-web"},
        "spec": {"clusterIP": "10.0.0.9", "ports": [{"name": "http", "port": 80}]},
    }
    assert service_variables([service]) == {
        "MY_WEB_SERVICE_HOST": "10.0.0.9",
        "MY_WEB_SERVICE_PORT": "80",
        "MY_WEB_SERVICE_PORT_HTTP": "80",
        "MY_WEB_PORT": "tcp://10.0.0.9:80",
        "MY_WEB_PORT_80_TCP": "tcp://10.0.0.9:80",
        "MY_WEB_PORT_80_TCP_PROTO": "tcp",
        "MY_WEB_PORT_80_TCP_PORT": "80",
        "MY_WEB_PORT_80_TCP_ADDR": "10.0.0.9",
    }
    assert service_variables([{**service, "spec": {"clusterIP": "None"}}]) == {}


def test_contents_of_a_projected_volume() -> None:
    sources = [
        {"configMap": {"name": "m", "items": [{"key": "k", "path": "d/k", "mode": 0o600}]}},
        {"secret": {"name": "s"}},
        {"serviceAccountToken": {"path": "token"}},
        {"downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}},
    ]
    volume = {"name": "v", "projected": {"sources": sources, "defaultMode": 0o440}}
    obj = pod()
    obj["spec"]["volumes"] = [volume]
    assert references(obj) == {("ConfigMap", "m"), ("Secret", "s")}
    assert files.contents(obj, volume, OBJECTS, ADDRESSES, {"token": b"t"}, {}) == {
        "d/k": (b"1", 0o600, None),
        "p": (b"hello", 0o440, None),
        "token": (b"t", 0o440, None),
        "name": (b"p", 0o440, None),
    }


def test_what_volumes_show_of_their_pod_that_may_change() -> None:
    fields = ["metadata.name", "metadata.labels", "metadata.annotations['a']"]
    items = [{"path": each, "fieldRef": {"fieldPath": each}} for each in fields]
    items.append({"path": "cpu", "resourceFieldRef": {"resource": "limits.cpu"}})
    obj = pod()
    obj["metadata"] |= {"labels": {"b": "1"}, "annotations": {"a": "2", "other": "3"}}
    for volume in (
        {"name": "v", "downwardAPI": {"items": items}},
        {
            "name": "v",
            "projected": {"sources": [{"secret": {}}, {"downwardAPI": {"items": items}}]},
        },
    ):
        obj["spec"]["volumes"] = [volume]
        found = files.changing_fields(obj)
        assert found == {"metadata.labels": 'b="1"', "metadata.annotations['a']": "2"}
    obj["spec"]["volumes"] = [{"name": "v", "configMap": {"name": "m"}}]
    assert files.changing_fields(obj) == {}


def test_a_volume_of_what_is_missing() -> None:
    volume = {"name": "v", "configMap": {"name": "m", "items": [{"key": "x", "path": "x"}]}}
    with pytest.raises(ConfigurationError, match="configmap references non-existent config key: x"):
        files.contents(pod(), volume, OBJECTS, Addresses((), ()), {}, {})
    volume["configMap"] = {"name": "gone", "optional": True}
    assert files.contents(pod(), volume, OBJECTS, Addresses((), ()), {}, {}) == {}


@pytest.mark.parametrize(
    ("of_pod", "of_container", "mode", "user"),
    [
        ({}, {}, 0o644, None),
        ({"fsGroup": 5}, {}, 0o600, None),
        ({"runAsUser": 7}, {}, 0o600, 7),
        ({"runAsUser": 7}, {"runAsUser": 8}, 0o644, None),
        ({"runAsUser": 7, "fsGroup": 5}, {"runAsUser": 8}, 0o600, None),
    ],
)
def test_who_may_read_a_token(of_pod: Any, of_container: Any, mode: int, user: int | None) -> None:
    volume = {"name": "v", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}
    obj = pod(names="ab")
    obj["spec"]["securityContext"] = of_pod
    obj["spec"]["containers"][0]["securityContext"] = of_container
    found = files.contents(obj, volume, {}, ADDRESSES, {"t": b"x"}, {})
    assert found == {"t": (b"x", mode, user)}


# Files of variables.


def of_file(text: str | None, **more: Any) -> dict[str, str]:
    reference = {"volumeName": "v", "path": "d/env", "key": "A", **more}
    container = {"name": "a", "env": [{"name": "X", "valueFrom": {"fileKeyRef": reference}}]}
    texts = {("v", "d/env"): text}
    return variables(pod(), container, OBJECTS, (), ADDRESSES, {}, texts)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("A='1'", "1"),
        ("\n# x\n  B='2'\nA='of two\nlines' # remark\n", "of two\nlines"),
        ("A='$B \\n'\nA='second'", "$B \\n"),
        ("A= 'x'", ""),
    ],
)
def test_variables_of_a_file(text: str, value: str) -> None:
    assert of_file(text) == {"X": value}


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (None, 'environment variable file "d/env" does not exist'),
        ("B='1'", 'environment variable key "A" not found in file "d/env"'),
        ("\nA", "at line 2: missing '='"),
        ("A=1", "at line 1: value must be enclosed in single quotes"),
        ("A ='1'", "at line 1: whitespace before '=' is not allowed"),
        ("='1'", "at line 1: empty variable name"),
        ("A='1", "at line 1: unterminated single quote"),
        ("A='1'2", "at line 1: unexpected content after the closing quote"),
    ],
)
def test_files_of_variables_that_cannot_be_used(text: str | None, error: str) -> None:
    with pytest.raises(ConfigurationError, match=error):
        of_file(text)


def test_variables_of_a_file_that_need_not_be_there() -> None:
    assert of_file(None, optional=True) == {}
    assert of_file("B='1'", optional=True) == {}
    with pytest.raises(ConfigurationError):
        of_file("A=1", optional=True)
