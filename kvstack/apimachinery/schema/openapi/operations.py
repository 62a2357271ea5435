"""The operations of a resource, by path, as an OpenAPI v3 document lists them.

    /apis/apps/v1/namespaces/{namespace}/deployments/{name}   get, put, patch, delete
    …/deployments/{name}/scale                                get, put, patch
    /apis/apps/v1/watch/deployments                           get

Which there are follows from scope and verbs of the row and of its subresources. Parameters that all
operations of a path share stand with the path.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from kvstack.apimachinery.schema.openapi import parameters
from kvstack.apimachinery.schema.openapi.parameters import Parameter
from kvstack.apimachinery.schema.openapi.schemas import REFERENCE
from kvstack.apimachinery.schema.resource import Kind, Resource, Subresource
from kvstack.apimachinery.schema.table import Table

Operation = dict[str, Any]
PathItem = dict[str, Any]

META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1"

_JSON: Final = "application/json"
_YAML: Final = "application/yaml"
_PROTOBUF: Final = "application/vnd.kubernetes.protobuf"
_CONNECTED: Final = ("delete", "get", "head", "options", "patch", "post", "put")
_METHODS: Final = {
    "get": "get",
    "list": "get",
    "watch": "get",
    "create": "post",
    "update": "put",
    "patch": "patch",
    "delete": "delete",
    "deletecollection": "delete",
}
_ACTIONS: Final = {"create": "post", "update": "put"}
_NAMESPACE: Final = parameters.in_path(
    "namespace", "object name and auth scope, such as for teams and projects"
)
_REST_OF_PATH: Final = parameters.in_path("path", "path to the resource")


class UnsharedOperation(NamedTuple):
    """One operation before its parameters are shared out."""

    path: str
    method: str
    operation: Operation
    parameters: list[Parameter]


def path_items(rows: Sequence[Resource], table: Table) -> dict[str, PathItem]:
    """Return the path items of the rows of one group and version, sorted by path."""
    by_path: dict[str, list[UnsharedOperation]] = {}
    for row in rows:
        for made in _Writer(row, table).all():
            by_path.setdefault(made.path, []).append(made)
    return {path: _item(operations) for path, operations in sorted(by_path.items())}


def plain_get(identity: str, tag: str, description: str, content: dict[str, Any]) -> PathItem:
    """Return a path with nothing but a GET of something fixed."""
    operation = {
        "description": description,
        "operationId": identity,
        "responses": _responses({"200": content}),
        "tags": [tag],
    }
    return {"get": operation}


def json_yaml_protobuf(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the contents of an answer in all three encodings."""
    return {each: {"schema": schema} for each in (_JSON, _PROTOBUF, _YAML)}


def group_words(group: str) -> str:
    """Return a group's name in operation ids: `RbacAuthorization`, `Core`."""
    name = group.removesuffix(".k8s.io") or "core"
    return "".join(f"{part[0].upper()}{part[1:]}" for part in name.split("."))


def tag_of(group: str, version: str = "") -> str:
    """Return the tag of a group's operations: `rbacAuthorization_v1`."""
    words = group_words(group)
    tag = words[0].lower() + words[1:]
    return f"{tag}_{version}" if version else tag


def reference(name: str) -> dict[str, Any]:
    """Return the reference to a component."""
    return {"$ref": REFERENCE + name}


def _item(operations: list[UnsharedOperation]) -> PathItem:
    common, rest = parameters.hoisted([each.parameters for each in operations])
    item: PathItem = {"parameters": common} if common else {}
    for made, own in zip(operations, rest, strict=True):
        if own:
            made.operation["parameters"] = own
        item[made.method] = dict(sorted(made.operation.items()))
    return dict(sorted(item.items()))


class _Writer:
    """Writes the operations of one row."""

    def __init__(self, row: Resource, table: Table) -> None:
        self._row = row
        self._table = table
        self._kind = row.kind.kind
        prefix = f"/apis/{row.group}" if row.group else "/api"
        self._prefix = f"{prefix}/{row.version}"
        self._scope = "Namespaced" if row.is_namespaced else ""
        self._in_namespace = "/namespaces/{namespace}" if row.is_namespaced else ""
        self._version = f"{group_words(row.group)}{row.version[0].upper()}{row.version[1:]}"
        self._where: list[Parameter] = [_NAMESPACE] if row.is_namespaced else []
        self._name = parameters.in_path("name", f"name of the {self._kind}")

    def all(self) -> Iterator[UnsharedOperation]:
        yield from self._collection()
        yield from self._one()
        yield from self._watches()
        for subresource in self._row.subresources.values():
            yield from self._subresource(subresource)

    def _collection(self) -> Iterator[UnsharedOperation]:
        row, kind = self._row, self._kind
        path = f"{self._prefix}{self._in_namespace}/{row.name}"
        query = parameters.query(parameters.LIST)
        if "list" in row.verbs:
            name = f"{row.component or row.type.name}List"
            text = f"list or watch objects of kind {kind}"
            yield self._operation(
                path,
                "list",
                f"list{{}}{self._scope}{kind}",
                text,
                query,
                {"200": self._stream(name)},
            )
            if row.is_namespaced:
                everywhere = f"{self._prefix}/{row.name}"
                identity = f"list{{}}{kind}ForAllNamespaces"
                answers = {"200": self._stream(name)}
                yield self._operation(everywhere, "list", identity, text, query, answers, where=[])
        if "create" in row.verbs:
            yield self._create(path, f"create{{}}{self._scope}{kind}", f"create a {kind}", row.kind)
        if "deletecollection" in row.verbs:
            yield self._operation(
                path,
                "deletecollection",
                f"delete{{}}Collection{self._scope}{kind}",
                f"delete collection of {kind}",
                parameters.query(parameters.DELETE_COLLECTION),
                {"200": self._content(f"{META}.Status")},
                body=self._delete_options(),
            )

    def _one(self) -> Iterator[UnsharedOperation]:
        row, kind = self._row, self._kind
        path = f"{self._prefix}{self._in_namespace}/{row.name}/{{name}}"
        yield from self._writes(path, f"{self._scope}{kind}", "the specified", row.kind, row.verbs)
        if "delete" in row.verbs:
            content = self._content(row.type.name if row.returns_deleted else f"{META}.Status")
            yield self._operation(
                path,
                "delete",
                f"delete{{}}{self._scope}{kind}",
                f"delete {_article(kind)} {kind}",
                parameters.query(parameters.DELETE),
                {"200": content, "202": content},
                where=[*self._where, self._name],
                body=self._delete_options(),
            )

    def _writes(
        self, path: str, words: str, which: str, kind: Kind, verbs: Sequence[str], part: str = ""
    ) -> Iterator[UnsharedOperation]:
        """Return get, update and patch of an object or of a part of it."""
        where = [*self._where, self._name]
        content = self._content(self._type_name(kind))
        of = f"{part} of {which} {self._kind}" if part else f"{which} {self._kind}"
        if "get" in verbs:
            query = parameters.query(parameters.READ)
            answers = {"200": content}
            yield self._operation(
                path, "get", f"read{{}}{words}", f"read {of}", query, answers, kind, where
            )
        both = {"200": content, "201": content}
        if "update" in verbs:
            query = parameters.query(parameters.WRITE)
            body = {"content": {"*/*": content[_JSON]}, "required": True}
            identity = f"replace{{}}{words}"
            text = f"replace {of}"
            yield self._operation(path, "update", identity, text, query, both, kind, where, body)
        if "patch" in verbs:
            query = parameters.query(parameters.PATCH)
            schema = {"schema": reference(f"{META}.Patch")}
            patches = dict.fromkeys(sorted(self._row.patches), schema)
            body = {"content": patches, "required": True}
            identity = f"patch{{}}{words}"
            text = f"partially update {of}"
            yield self._operation(path, "patch", identity, text, query, both, kind, where, body)

    def _create(
        self,
        path: str,
        identity: str,
        text: str,
        kind: Kind,
        where: list[Parameter] | None = None,
    ) -> UnsharedOperation:
        content = self._content(self._type_name(kind))
        known = parameters.query(parameters.WRITE)
        answers = {"200": content, "201": content, "202": content}
        body = {"content": {"*/*": content[_JSON]}, "required": True}
        return self._operation(path, "create", identity, text, known, answers, kind, where, body)

    def _watches(self) -> Iterator[UnsharedOperation]:
        if "watch" not in self._row.verbs or self._row.is_custom:
            return
        kind, name = self._kind, self._row.name
        below = f"{self._prefix}/watch{self._in_namespace}/{name}"
        several = f"watch individual changes to a list of {kind}"
        of_lists = f"watch{{}}{self._scope}{kind}List"
        yield self._watch(below, "watchlist", of_lists, several, self._where)
        one = f"watch changes to an object of kind {kind}"
        by_name = [*self._where, self._name]
        yield self._watch(
            f"{below}/{{name}}", "watch", f"watch{{}}{self._scope}{kind}", one, by_name
        )
        if self._row.is_namespaced:
            everywhere = f"{self._prefix}/watch/{name}"
            identity = f"watch{{}}{kind}ListForAllNamespaces"
            yield self._watch(everywhere, "watchlist", identity, several, [])

    def _watch(
        self, path: str, action: str, identity: str, text: str, where: list[Parameter]
    ) -> UnsharedOperation:
        answers = {"200": self._stream(f"{META}.WatchEvent")}
        known = parameters.query(parameters.LIST)
        made = self._operation(path, "watch", identity, text, known, answers, where=where)
        made.operation["x-kubernetes-action"] = action
        return made

    def _subresource(self, part: Subresource) -> Iterator[UnsharedOperation]:
        row = self._row
        path = f"{self._prefix}{self._in_namespace}/{row.name}/{{name}}/{part.name}"
        words = f"{self._scope}{self._kind}{part.name[0].upper()}{part.name[1:]}"
        if part.kind.kind.endswith("Options"):
            yield from self._connect(part, path, words)
        elif part.name == "log":
            yield self._log(path, words)
        else:
            which = "the specified"
            yield from self._writes(path, words, which, part.kind, part.verbs, part.name)
            if "create" in part.verbs:
                text = f"create {part.name} of {_article(self._kind)} {self._kind}"
                where = [*self._where, self._name_of(part)]
                yield self._create(path, f"create{{}}{words}", text, part.kind, where)

    def _name_of(self, part: Subresource) -> Parameter:
        is_own = part.type is self._row.type
        return self._name if is_own else parameters.in_path("name", f"name of the {part.kind.kind}")

    def _log(self, path: str, words: str) -> UnsharedOperation:
        query = [*parameters.query(parameters.READ), *self._options("PodLogOptions")]
        schema = {"schema": {"type": "string"}}
        kinds = (*self._content(""), "text/plain")
        answers = {"200": dict.fromkeys(sorted(kinds), schema)}
        text = f"read log of the specified {self._kind}"
        where = [*self._where, self._name]
        return self._operation(path, "get", f"read{{}}{words}", text, query, answers, where=where)

    def _connect(self, part: Subresource, path: str, words: str) -> Iterator[UnsharedOperation]:
        query = self._options(part.kind.kind)
        name = self._name_of(part)
        methods = _CONNECTED if part.name == "proxy" else ("get", "post")
        paths = [(path, "", [*self._where, name])]
        if part.name == "proxy":
            longer = [*self._where, name, _REST_OF_PATH]
            paths.append((f"{path}/{{path}}", "WithPath", longer))
        for each, suffix, where in paths:
            for method in methods:
                identity = f"connect{{}}{method.capitalize()}{words}{suffix}"
                text = f"connect {method.upper()} requests to {part.name} of {self._kind}"
                answers = {"200": {"*/*": {"schema": {"type": "string"}}}}
                made = self._operation(
                    each, "get", identity, text, query, answers, part.kind, where
                )
                made.operation["x-kubernetes-action"] = "connect"
                yield made._replace(method=method)

    def _operation(
        self,
        path: str,
        verb: str,
        identity: str,
        description: str,
        query: list[Parameter],
        answers: dict[str, Any],
        kind: Kind | None = None,
        where: list[Parameter] | None = None,
        body: dict[str, Any] | None = None,
    ) -> UnsharedOperation:
        row = self._row
        group, version, name = _parts(kind or row.kind)
        operation: Operation = {
            "description": description,
            "operationId": identity.format(self._version),
            "responses": _responses(answers),
            "tags": [tag_of(row.group, row.version)],
            "x-kubernetes-action": _ACTIONS.get(verb, verb),
            "x-kubernetes-group-version-kind": {"group": group, "kind": name, "version": version},
        }
        if body is not None:
            operation["requestBody"] = body
        place = self._where if where is None else where
        return UnsharedOperation(path, _METHODS[verb], operation, [*place, *query])

    def _content(self, name: str) -> dict[str, Any]:
        schema = {"schema": reference(name)}
        kinds = (_JSON, _YAML) if self._row.is_custom else (_JSON, _PROTOBUF, _YAML)
        return dict.fromkeys(kinds, schema)

    def _stream(self, name: str) -> dict[str, Any]:
        content = self._content(name)
        watched = [each for each in content if each != _YAML]
        content |= {f"{each};stream=watch": content[each] for each in watched}
        return dict(sorted(content.items()))

    def _delete_options(self) -> dict[str, Any]:
        return {"content": {"*/*": {"schema": reference(f"{META}.DeleteOptions")}}}

    def _type_name(self, kind: Kind) -> str:
        if self._row.component and kind == self._row.kind:
            return self._row.component
        type_ = self._table.type_of(kind)
        if type_ is None:
            raise ValueError(f"{kind} has no type")
        return type_.name

    def _options(self, name: str) -> list[Parameter]:
        return parameters.options(self._table.types[f"io.k8s.api.core.v1.{name}"])


def _parts(kind: Kind) -> tuple[str, str, str]:
    return kind.group, kind.version, kind.kind


def _article(kind: str) -> str:
    return "an" if kind[0] in "AEIOU" else "a"


def _responses(answers: dict[str, Any]) -> dict[str, Any]:
    words = {"200": "OK", "201": "Created", "202": "Accepted"}
    found: dict[str, Any] = {
        code: {"content": content, "description": words[code]} for code, content in answers.items()
    }
    found["401"] = {"description": "Unauthorized"}
    return found
