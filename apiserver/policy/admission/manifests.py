"""Webhooks and policies from manifest files, which cannot be removed through the API.

    found = read_manifests(plugin, files, decode)     by their resource; raises DocumentError
    manifests.replace(plugin, found)                  they apply from now on

Their names end with `.static.k8s.io`, which the API refuses. They precede those of the API, and
only they apply to webhooks and policies themselves. Webhooks use URLs and policies have no
parameters, so that they do not depend on objects of the cluster.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias

from kvstack.apimachinery.objects.groups import GroupResource
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.text import json_text, yaml_text
from kvstack.apimachinery.objects.text.config_document import DocumentError
from kvstack.apimachinery.objects.text.go_text import quote
from kvstack.apimachinery.objects.text.yaml_scalars import YamlError

SUFFIX: Final = ".static.k8s.io"
GROUP: Final = "admissionregistration.k8s.io"
API_VERSION: Final = f"{GROUP}/v1"
_SEPARATOR: Final = re.compile(rb"^---[ \t\r]*$", re.MULTILINE)

Objects: TypeAlias = dict[GroupResource, list[Object]]
Decode: TypeAlias = Callable[[str, bytes], Object]
"""Returns the object of a kind in a text with its defaults; raises DocumentError if it is
invalid."""


class Kinds(NamedTuple):
    """The kinds that the manifest files of a plugin may hold, and their resources."""

    main: tuple[str, str]
    binding: tuple[str, str] | None = None


KINDS: Final[Mapping[str, Kinds]] = {
    "MutatingAdmissionWebhook": Kinds(
        ("MutatingWebhookConfiguration", "mutatingwebhookconfigurations")
    ),
    "ValidatingAdmissionWebhook": Kinds(
        ("ValidatingWebhookConfiguration", "validatingwebhookconfigurations")
    ),
    "MutatingAdmissionPolicy": Kinds(
        ("MutatingAdmissionPolicy", "mutatingadmissionpolicies"),
        ("MutatingAdmissionPolicyBinding", "mutatingadmissionpolicybindings"),
    ),
    "ValidatingAdmissionPolicy": Kinds(
        ("ValidatingAdmissionPolicy", "validatingadmissionpolicies"),
        ("ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings"),
    ),
}
"""Kinds by plugin."""


class Manifests:
    """The objects of all plugins."""

    def __init__(self, plugins: Iterable[str] = ()) -> None:
        """plugins: those with manifest files."""
        self.plugins: Final = frozenset(plugins)
        self._objects: Objects = {}
        self._listeners: dict[GroupResource, list[Callable[[], None]]] = {}

    def list(self, resource: GroupResource) -> list[Object]:
        """Return the objects of a resource, ordered by name."""
        return self._objects.get(resource, [])

    def subscribe(self, resource: GroupResource, changed: Callable[[], None]) -> None:
        """Have a function called when objects of a resource have changed."""
        self._listeners.setdefault(resource, []).append(changed)

    def replace(self, objects: Objects) -> None:
        """Replace the objects of the given resources."""
        self._objects |= objects
        for resource in objects:
            for changed in self._listeners.get(resource, ()):
                changed()


def read_manifests(plugin: str, files: Iterable[tuple[str, bytes]], decode: Decode) -> Objects:
    """Return the objects of a plugin's files; raises DocumentError, which names the file."""
    kinds = KINDS[plugin]
    resources = dict(each for each in kinds if each is not None)
    by_resource: Objects = {GroupResource(GROUP, name): [] for name in resources.values()}
    names: dict[tuple[str, str], str] = {}
    for path, data in files:
        try:
            for kind, text in _documents(data):
                _check_kind(kind, resources)
                obj = decode(kind, text)
                _check_name(obj, kind, path, names)
                _check(obj, kind, path)
                by_resource[GroupResource(GROUP, resources[kind])].append(obj)
        except DocumentError as error:
            raise DocumentError(f"error loading {path}: {error}") from None
    if kinds.binding is not None:
        main, binding = (GroupResource(GROUP, each[1]) for each in (kinds.main, kinds.binding))
        _check_references(by_resource[main], by_resource[binding])
    for objects in by_resource.values():
        objects.sort(key=lambda each: str(each["metadata"]["name"]))
    return by_resource


def _documents(data: bytes) -> Iterable[tuple[str, bytes]]:
    """Yield the kind and the text of each object; those of a List individually."""
    for text in _SEPARATOR.split(data):
        if not text.strip():
            continue
        try:
            value = yaml_text.parse(text).value
        except YamlError as error:
            raise DocumentError(str(error)) from None
        if not isinstance(value, dict):
            raise DocumentError("it must be an object")
        if value.get("kind") == "List" and value.get("apiVersion") == "v1":
            items = value.get("items") or []
            for item in items if isinstance(items, list) else [items]:
                if not isinstance(item, dict):
                    raise DocumentError("an item of a List must be an object")
                yield _kind(item), json_text.write(item)
        else:
            yield _kind(value), text


def _kind(value: Object) -> str:
    if value.get("apiVersion") != API_VERSION:
        raise DocumentError(f"apiVersion must be {API_VERSION}, not {value.get('apiVersion')}")
    return str(value.get("kind") or "")


def _check_kind(kind: str, kinds: Iterable[str]) -> None:
    if kind not in kinds:
        raise DocumentError(f"unsupported resource type {quote(kind)}: one of {', '.join(kinds)}")


def _check_name(obj: Object, kind: str, path: str, names: dict[tuple[str, str], str]) -> None:
    name: str = (obj.get("metadata") or {}).get("name") or ""
    if not name:
        raise DocumentError(f"resource in file {quote(path)} must have a name")
    if not name.endswith(SUFFIX):
        raise DocumentError(
            f"{quote(name)} in file {quote(path)} must have a name ending with {quote(SUFFIX)}"
        )
    if (kind, name) in names:
        raise DocumentError(
            f"duplicate name {quote(name)} found in file {quote(path)} (previously seen in"
            f" {quote(names[kind, name])})"
        )
    names[kind, name] = path


def _check(obj: Object, kind: str, path: str) -> None:
    name, spec = obj["metadata"]["name"], obj.get("spec") or {}
    for each in obj.get("webhooks") or ():
        prefix = f"webhook {quote(each.get('name', ''))} in {quote(name)} (file {quote(path)})"
        client = each.get("clientConfig") or {}
        if client.get("service") is not None:
            raise DocumentError(
                f"{prefix}: clientConfig.service is not supported for static manifests; use"
                " clientConfig.url instead"
            )
        if not client.get("url"):
            raise DocumentError(f"{prefix}: clientConfig.url is required for static manifests")
    if spec.get("paramKind") is not None:
        raise DocumentError(
            f"{kind} {quote(name)}: spec.paramKind is not supported for static manifests"
        )
    if not kind.endswith("Binding"):
        return
    policy = spec.get("policyName") or ""
    if not policy:
        raise DocumentError(f"binding {quote(name)} must reference a policy (spec.policyName)")
    if not policy.endswith(SUFFIX):
        raise DocumentError(
            f"binding {quote(name)}: spec.policyName {quote(policy)} must end with {quote(SUFFIX)}"
        )
    if spec.get("paramRef") is not None:
        raise DocumentError(
            f"binding {quote(name)}: spec.paramRef is not supported for static manifests"
        )


def _check_references(policies: list[Object], bindings: list[Object]) -> None:
    names = {each["metadata"]["name"] for each in policies}
    for each in bindings:
        policy = each["spec"]["policyName"]
        if policy not in names:
            raise DocumentError(
                f"binding {quote(each['metadata']['name'])} references policy {quote(policy)} which"
                " does not exist in the manifest directory"
            )
