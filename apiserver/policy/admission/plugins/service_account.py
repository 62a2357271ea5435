"""ServiceAccount: every pod runs as a service account of its namespace, with a token mounted.

    spec.serviceAccountName: default
    spec.volumes: kube-api-access-x7k2p (token, ca.crt, namespace), mounted into every container

Mirror pods have no account. An account may be limited to the Secrets that it lists. The default
account of a new namespace is awaited, since a controller makes it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Container, Iterable
from typing import Any, Final

from kvstack.apimachinery.objects import status
from kvstack.apimachinery.objects.core.group_resources import PODS, SERVICE_ACCOUNTS
from kvstack.apimachinery.objects.core.pod_references import is_mirror, secret_names
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.names import check_path_segment
from kvstack.apimachinery.objects.text.go_text import quote
from kvstack.apimachinery.well_known import MOUNTABLE_SECRETS_ANNOTATION
from kvstack.apiserver.kinds.core.token_requests import INJECTED_SECONDS
from kvstack.apiserver.kinds.pods.known_specs import TOKEN_VOLUME_PREFIX
from kvstack.apiserver.policy.admission.plugin import Listed, calls
from kvstack.apiserver.policy.admission.request import CREATE, UPDATE, AdmissionRequest
from kvstack.apiserver.policy.interfaces import LiveObjects, ObjectView

MOUNT_PATH: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
_DEFAULT: Final = "default"
_TRUE: Final = frozenset(("1", "t", "T", "TRUE", "true", "True"))
_TRIES_MAX: Final = 10
_INTERVAL_S: Final = 0.15
_CONTAINERS: Final = (("initContainers", "init container"), ("containers", "container"))


def token_volume(name: str) -> Object:
    """Return the volume with what a container needs to access the API."""
    token = {"expirationSeconds": INJECTED_SECONDS, "path": "token"}
    authorities = {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}
    namespace = {"apiVersion": "v1", "fieldPath": "metadata.namespace"}
    sources: list[Object] = [
        {"serviceAccountToken": token},
        {"configMap": authorities},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": namespace}]}},
    ]
    return {"name": name, "projected": {"sources": sources, "defaultMode": 0o644}}


class ServiceAccount(Listed):
    """Gives pods their account."""

    name = "ServiceAccount"
    calls = calls((CREATE,), PODS) | calls((UPDATE,), PODS, "ephemeralcontainers")

    def __init__(self, view: ObjectView, live: LiveObjects, new_name: Callable[[str], str]) -> None:
        """new_name: returns a prefix with a random suffix."""
        self._view: Final = view
        self._live: Final = live
        self._new_name: Final = new_name

    def mutate(self, request: AdmissionRequest) -> Awaitable[None] | None:
        """Set the account of a new pod and mount its token."""
        if request.operation != CREATE or is_mirror(request.new):
            return self.validate(request)
        spec = request.own("spec")
        if not spec.get("serviceAccountName"):
            spec["serviceAccountName"] = spec["serviceAccount"] = _DEFAULT
        name = spec["serviceAccountName"]
        account = self._view.get(SERVICE_ACCOUNTS, request.namespace, name)
        if account is None:
            return self._wait(request, name, self._complete)
        self._complete(request, account)
        return None

    def validate(self, request: AdmissionRequest) -> Awaitable[None] | None:
        """Check that the account exists and that the pod uses only Secrets that it may."""
        pod = request.new
        if request.operation == CREATE and is_mirror(pod):
            _check_mirror(request)
            return None
        metadata, name = pod["metadata"], (pod.get("spec") or {}).get("serviceAccountName")
        if not name:
            raise request.forbidden(
                f"no service account specified for pod {request.namespace}/"
                f"{metadata.get('name', '')}"
            )
        account = self._view.get(SERVICE_ACCOUNTS, request.namespace, name)
        if account is None:
            return self._wait(request, name, _check_secrets)
        _check_secrets(request, account)
        return None

    async def _wait(
        self,
        request: AdmissionRequest,
        name: str,
        go_on: Callable[[AdmissionRequest, Object], None],
    ) -> None:
        """Wait for the account to be created, up to a limit."""
        if wrong := check_path_segment(name):
            raise request.forbidden(
                f"error looking up service account {request.namespace}/{name}:"
                f" invalid resource name {quote(name)}: [{' '.join(wrong)}]"
            )
        for attempt in range(_TRIES_MAX if name == _DEFAULT else 1):
            if attempt:
                await asyncio.sleep(_INTERVAL_S)
            await self._live.catch_up()
            account = self._view.get(SERVICE_ACCOUNTS, request.namespace, name)
            if account is not None:
                go_on(request, account)
                return
        raise request.forbidden(
            f"error looking up service account {request.namespace}/{name}:"
            f" serviceaccount {quote(name)} not found"
        )

    def _complete(self, request: AdmissionRequest, account: Object) -> None:
        spec = request.new["spec"]
        if _mounts(spec, account):
            self._mount(spec)
        pull_secrets = account.get("imagePullSecrets")
        if pull_secrets and not spec.get("imagePullSecrets"):
            spec["imagePullSecrets"] = [{"name": each["name"]} for each in pull_secrets]
        _check_secrets(request, account)

    def _mount(self, spec: Object) -> None:
        volumes = spec.get("volumes") or ()
        names = (each.get("name", "") for each in volumes)
        volume_name = next((each for each in names if each.startswith(TOKEN_VOLUME_PREFIX)), "")
        name = volume_name or self._new_name(TOKEN_VOLUME_PREFIX)
        mount = {"name": name, "readOnly": True, "mountPath": MOUNT_PATH}
        is_needed = False
        for member, _ in _CONTAINERS:
            containers = [_mounted(each, mount) for each in spec.get(member) or ()]
            if any(map(bool, containers)):
                spec[member] = [
                    new or old for new, old in zip(containers, spec[member], strict=True)
                ]
                is_needed = True
        if is_needed and not volume_name:
            spec["volumes"] = [*volumes, token_volume(name)]


def _mounts(spec: Object, account: Object) -> bool:
    for each in (spec, account):
        wanted: bool | None = each.get("automountServiceAccountToken")
        if wanted is not None:
            return wanted
    return True


def _mounted(container: Object, mount: Object) -> Object | None:
    """Return a container with the mount; None: the path is in use."""
    mounts = container.get("volumeMounts") or ()
    if any(each.get("mountPath") == MOUNT_PATH for each in mounts):
        return None
    return {**container, "volumeMounts": [*mounts, dict(mount)]}


def _check_mirror(request: AdmissionRequest) -> None:
    pod = request.new
    if (pod.get("spec") or {}).get("serviceAccountName"):
        raise request.forbidden("a mirror pod may not reference service accounts")
    if any(True for _ in secret_names(pod)):
        raise request.forbidden("a mirror pod may not reference secrets")
    for volume in pod["spec"].get("volumes") or ():
        sources = (volume.get("projected") or {}).get("sources") or ()
        if any(each.get("serviceAccountToken") for each in sources):
            raise request.forbidden(
                "a mirror pod may not use ServiceAccountToken volume projections"
            )


def _check_secrets(request: AdmissionRequest, account: Object) -> None:
    annotations = account["metadata"].get("annotations") or {}
    if annotations.get(MOUNTABLE_SECRETS_ANNOTATION) not in _TRUE:
        return
    spec: Object = request.new["spec"]
    name = account["metadata"]["name"]
    allowed = {each.get("name", "") for each in account.get("secrets") or ()}
    tail = f"is not allowed because service account {name} does not reference that"
    if request.operation == UPDATE:
        containers = spec.get("ephemeralContainers") or ()
        if problem := _other_secret(containers, "ephemeral container", allowed):
            # Upstream does not make this one a refusal.
            raise status.unknown(f"{problem} {tail} secret")
        return
    for volume in spec.get("volumes") or ():
        secret = (volume.get("secret") or {}).get("secretName")
        if volume.get("secret") and secret not in allowed:
            raise request.forbidden(f'volume with secret.secretName="{secret or ""}" {tail} secret')
    for member, kind in _CONTAINERS:
        if problem := _other_secret(spec.get(member) or (), kind, allowed):
            raise request.forbidden(f"{problem} {tail} secret")
    pulls = {each.get("name", "") for each in account.get("imagePullSecrets") or ()}
    for position, each in enumerate(spec.get("imagePullSecrets") or ()):
        if each.get("name", "") not in pulls:
            raise request.forbidden(
                f'imagePullSecrets[{position}].name="{each.get("name", "")}" {tail} imagePullSecret'
            )


def _other_secret(containers: Iterable[Object], kind: str, allowed: Container[str]) -> str:
    """Return which container uses a Secret that is not allowed, and its field; or ""."""
    for container in containers:
        of_container = f"{kind} {container.get('name', '')}"
        for variable in container.get("env") or ():
            reference: Any = (variable.get("valueFrom") or {}).get("secretKeyRef")
            if reference is not None and reference.get("name", "") not in allowed:
                secret = reference.get("name", "")
                where = f"with envVar {variable.get('name', '')}"
                return f'{of_container} {where} referencing secret.secretName="{secret}"'
        for source in container.get("envFrom") or ():
            reference = source.get("secretRef")
            if reference is not None and reference.get("name", "") not in allowed:
                secret = reference.get("name", "")
                return f'{of_container} with envFrom referencing secret.secretName="{secret}"'
    return ""
