"""An operator for tests with admission handlers: it refuses ConfigMaps and labels them."""

import os
from typing import Any

import kopf
from kubernetes import config


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
    config.load_kube_config()
    settings.admission.managed = "rules.example.com"
    settings.admission.server = kopf.WebhookServer(
        addr="127.0.0.1",
        host="127.0.0.1",
        certfile=os.environ["HOOK_CERT"],
        pkeyfile=os.environ["HOOK_KEY"],
        cafile=os.environ["HOOK_CA"],
    )


@kopf.on.validate("configmaps", labels={"checked": "yes"})
def check(body: Any, warnings: list[str], **_: Any) -> None:
    warnings.append("looked at")
    if "bad" in body.get("data", {}):
        raise kopf.AdmissionError("bad is bad", code=418)


@kopf.on.mutate("configmaps", labels={"checked": "yes"})
def mark(patch: kopf.Patch, **_: Any) -> None:
    patch.metadata.labels["marked"] = "yes"
