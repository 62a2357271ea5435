"""An operator for tests: it copies every ConfigMap labelled copy=yes into a Secret of its name."""

import logging
from typing import Any

import kopf
from kubernetes import client, config

logging.getLogger("kopf.objects").setLevel(logging.WARNING)


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
    config.load_kube_config()
    settings.persistence.finalizer = "test.example/copy"
    settings.networking.error_backoffs = [0.1, 0.2, 0.5, 1, 1, 1, 1, 1, 1, 1]
    settings.batching.error_delays = [0.1, 0.2, 0.5, 1]


@kopf.on.create("configmaps", labels={"copy": "yes"})
@kopf.on.update("configmaps", labels={"copy": "yes"})
def copy(*, name: str, namespace: str | None, body: Any, **_: Any) -> None:
    assert namespace is not None
    core = client.CoreV1Api()
    secret = client.V1Secret(
        metadata=client.V1ObjectMeta(name=name), string_data=dict(body.get("data", {}))
    )
    try:
        core.create_namespaced_secret(namespace, secret)
    except client.ApiException as error:
        if error.status != 409:
            raise kopf.TemporaryError(str(error.status), delay=0.2) from error
        core.replace_namespaced_secret(name, namespace, secret)


@kopf.on.delete("configmaps", labels={"copy": "yes"})
def forget(*, name: str, namespace: str | None, **_: Any) -> None:
    assert namespace is not None
    try:
        client.CoreV1Api().delete_namespaced_secret(name, namespace)
    except client.ApiException as error:
        if error.status != 404:
            raise kopf.TemporaryError(str(error.status), delay=0.2) from error
