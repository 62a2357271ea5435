"""Data by keys: of ConfigMaps and Secrets."""

import base64
from typing import Any

import pytest

from kvstack.apiserver.kinds.core.config_maps import CONFIG_MAPS
from kvstack.apiserver.kinds.core.keyed_data import DATA_BYTES_MAX
from kvstack.apiserver.kinds.core.secrets import SECRETS
from tests.apiserver.kinds.hooks import (
    change_refusals,
    changed,
    prepared_object,
    refusals,
    warnings_of,
)

BAD_KEY = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g."
    " 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)


def encoded(data: bytes) -> str:
    """Return bytes as JSON has them."""
    return base64.b64encode(data).decode()


def config_map(**members: Any) -> dict[str, Any]:
    """Return a ConfigMap."""
    return {"metadata": {"name": "c"}, **members}


def secret(kind: str = "Opaque", /, **data: str) -> dict[str, Any]:
    """Return a Secret; an underscore in a key's name stands for a dot."""
    named = {name.replace("_", "."): value for name, value in data.items()}
    return {"metadata": {"name": "s"}, "type": kind, "data": named}


def test_keys_of_config_maps() -> None:
    """Texts and bytes share their keys."""
    assert refusals(CONFIG_MAPS, config_map(data={"a b": ""}, binaryData={"..": ""})) == [
        f'data[a b]: Invalid value: "a b": {BAD_KEY}',
        "binaryData[..]: Invalid value: \"..\": must not be '..'",
    ]
    assert refusals(CONFIG_MAPS, config_map(data={"a": ""}, binaryData={"a": ""})) == [
        'data[a]: Invalid value: "a": duplicate of key present in binaryData'
    ]


def test_size_of_config_maps() -> None:
    """Bytes count as they are, not as base64; texts as UTF-8."""
    half = "é" * (DATA_BYTES_MAX // 4)
    rest = encoded(b"x" * (DATA_BYTES_MAX // 2))
    assert refusals(CONFIG_MAPS, config_map(data={"a": half}, binaryData={"b": rest})) == []
    more = config_map(data={"a": half + "x"}, binaryData={"b": rest})
    assert refusals(CONFIG_MAPS, more) == ["[]: Too long: may not be more than 1048576 bytes"]


def test_null_bytes_are_empty() -> None:
    """The store cannot tell them apart."""
    assert prepared_object(CONFIG_MAPS, config_map(binaryData={"a": None}))["binaryData"] == {
        "a": ""
    }
    given = secret() | {"data": {"a": None, "b": "eA=="}}
    assert prepared_object(SECRETS, given)["data"] == {"a": "", "b": "eA=="}


SEALED = "Forbidden: field is immutable when `immutable` is set"


def test_sealed_config_map() -> None:
    """Nothing of its data changes, and it stays sealed."""
    old = config_map(data={"a": "1"}, immutable=True)
    assert change_refusals(CONFIG_MAPS, old, old) == []
    assert change_refusals(CONFIG_MAPS, config_map(binaryData={"b": ""}), old) == [
        f"immutable: {SEALED}",
        f"data: {SEALED}",
        f"binaryData: {SEALED}",
    ]
    assert change_refusals(CONFIG_MAPS, old, config_map()) == []


def test_sealed_secret() -> None:
    """As ConfigMaps; the type of a Secret never changes."""
    old = secret(a="") | {"immutable": True}
    assert change_refusals(SECRETS, secret(a="eA=="), old) == [
        f"immutable: {SEALED}",
        f"data: {SEALED}",
    ]
    assert change_refusals(SECRETS, secret("x/y"), secret()) == [
        'type: Invalid value: "x/y": field is immutable'
    ]


def test_string_data_is_written_over_data() -> None:
    """And is never stored itself."""
    given = secret(a="eA==", b="eQ==") | {"stringData": {"b": "z", "c": "é"}}
    found = prepared_object(SECRETS, given)
    assert found["data"] == {"a": "eA==", "b": "eg==", "c": encoded(b"\xc3\xa9")}
    assert "stringData" not in found
    assert "data" not in prepared_object(SECRETS, {"metadata": {}, "stringData": {}})


def test_type_is_kept_where_a_change_names_none() -> None:
    """Defaults come first, so that is the type of a new one."""
    new = secret()
    del new["type"]
    assert changed(SECRETS, new, secret())["type"] == "Opaque"


def test_size_of_secrets() -> None:
    """One MiB of bytes."""
    most = encoded(b"x" * DATA_BYTES_MAX)
    assert refusals(SECRETS, secret(a=most)) == []
    assert refusals(SECRETS, secret(a=most, b="eA==")) == [
        "data: Too long: may not be more than 1048576 bytes"
    ]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (secret("kubernetes.io/basic-auth", username=""), []),
        (
            secret("kubernetes.io/basic-auth"),
            ["data[username]: Required value", "data[password]: Required value"],
        ),
        (secret("kubernetes.io/ssh-auth"), ["data[ssh-privatekey]: Required value"]),
        (secret("kubernetes.io/tls", tls_crt=""), ["data[tls.key]: Required value"]),
        (secret("kubernetes.io/dockercfg"), ["data[.dockercfg]: Required value"]),
        (secret("kubernetes.io/dockercfg", _dockercfg=encoded(b"{}")), []),
        (secret("kubernetes.io/dockercfg", _dockercfg=encoded(b"null")), []),
        (
            secret("kubernetes.io/dockerconfigjson", _dockerconfigjson=encoded(b"[]")),
            [
                'data[.dockerconfigjson]: Invalid value: "<secret contents redacted>":'
                " json: cannot unmarshal array into Go value of type map[string]interface {}"
            ],
        ),
        (
            secret("kubernetes.io/dockerconfigjson", _dockerconfigjson=encoded(b'{"a":}')),
            [
                'data[.dockerconfigjson]: Invalid value: "<secret contents redacted>":'
                " invalid character '}' looking for beginning of value"
            ],
        ),
        (
            secret("kubernetes.io/service-account-token"),
            ["metadata.annotations[kubernetes.io/service-account.name]: Required value"],
        ),
        (secret("example.com/mine"), []),
    ],
)
def test_types_of_secrets(given: dict[str, Any], expected: list[str]) -> None:
    """Each known type needs some keys."""
    assert refusals(SECRETS, given) == expected


def test_warning_of_a_pair_that_is_none() -> None:
    """Only of the type for TLS."""
    assert warnings_of(SECRETS, secret("kubernetes.io/tls", tls_crt="", tls_key="")) == [
        "tls: failed to find any PEM data in certificate input"
    ]
    assert warnings_of(SECRETS, secret("example.com/tls")) == []
