"""Replays recorded requests against the hooks of kinds, without a server.

    for scenario in recorded("invalid-pods"):
        replay = Replay()
        for step in scenario["steps"]:
            result = replay.play(step)

A step is `{note, method, path, type?, body, now?, status, answer, warnings?}`; `type` is the
content type where it is not JSON, `now` the time of the request. What a step wrote is known to the
steps after it as the answer shows it, so one difference does not cause others.

A step is set aside when the hooks have no part in its answer: reads and deletes, bodies that could
not be decoded, refusals of admission plugins, missing objects, conflicts. Of admission there is
here what changes every object of a kind, see `ADMISSION`.
"""

import gzip
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qs, urlsplit

from kvstack.apimachinery.objects import json_patch, merge_patch, metadata, status
from kvstack.apimachinery.objects.field_errors import FieldError
from kvstack.apimachinery.objects.groups import GroupKind
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.names import name_is_dns_subdomain, name_is_path_segment
from kvstack.apimachinery.objects.status import ApiError
from kvstack.apimachinery.schema import strategic_merge
from kvstack.apimachinery.schema.decode import DecodeError, decode_as_given, normalize
from kvstack.apimachinery.schema.load import load
from kvstack.apimachinery.schema.resource import Resource
from kvstack.apimachinery.schema.stored_form import without_empty
from kvstack.apimachinery.schema.types import Type
from kvstack.apiserver.kinds.access import FULL_ACCESS
from kvstack.apiserver.kinds.expressions_in_cel import CEL
from kvstack.apiserver.kinds.strategy import Context, Strategy
from kvstack.apiserver.kinds.table import strategy_of
from kvstack.apiserver.verbs.writing.completion import distinct

RECORDED: Final = Path(__file__).parent.parent / "recorded"
TABLE: Final = load()
WARNINGS_LENGTH_MAX: Final = 4096
"""Longer texts are cut by the server; they are not compared."""

TOLD_OF_RESOURCES: Final = (
    "v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice",
)
"""Warnings about a resource as such, whatever is asked of it; the hooks know nothing of them."""

EQUAL, DIFFERENT, ASIDE = "equal", "different", "aside"


class Result(NamedTuple):
    """What came of one step."""

    outcome: str
    """EQUAL, DIFFERENT or ASIDE."""
    detail: str = ""
    """Where it differs, or why it was set aside."""


Key = tuple[str, str, str, str]
"""Group, resource, namespace and name."""


class Target(NamedTuple):
    """What a path names."""

    row: Resource
    namespace: str
    name: str
    subresource: str
    query: Mapping[str, list[str]]

    @property
    def key(self) -> Key:
        """Return the key of the object."""
        return (self.row.group, self.row.name, self.namespace, self.name)


class Reply(NamedTuple):
    """What the hooks answer."""

    status: int
    body: Object
    warnings: list[str]
    changed: Mapping[Key, Object] = {}
    """Objects that were written besides; a later GET of them is compared."""


class Request(NamedTuple):
    """A request whose path is understood, and the object it writes if there is one."""

    target: Target
    step: Mapping[str, Any]
    strategy: Strategy
    stored: Object | None
    known: Mapping[Key, Object]
    """All objects that are stored."""

    def decoded(self, body: object) -> tuple[Object, list[str]]:
        """Return a body as an object, and what is told of its unknown fields."""
        row = self.target.row
        obj, unknown, _ = decode_as_given(body, row.type)
        obj.setdefault("apiVersion", row.group_version)
        obj.setdefault("kind", row.kind.kind)
        is_told = self.target.query.get("fieldValidation", [""]) in ([""], ["Warn"])
        return obj, unknown if is_told else []

    @property
    def now(self) -> str:
        """Return the time of the request."""
        now: str = self.step.get("now", "2026-01-01T00:00:00Z")
        return now

    def context(self) -> Context:
        """Return the context of its hooks."""
        return Context(
            now=self.now,
            namespace=self.target.namespace,
            api_version=self.target.row.group_version,
            user="admin",
            user_uid="admin",
            groups=("system:masters", "system:authenticated"),
            is_dry_run="dryRun" in self.target.query,
            allow_privileged=True,  # as the recorded server
            access=FULL_ACCESS,
            expressions=CEL,
        )


def recorded(name: str) -> Iterator[dict[str, Any]]:
    """Return the scenarios of one file."""
    with gzip.open(RECORDED / f"{name}.jsonl.gz", "rt", encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)


Admit = Callable[[Object, Object | None], None]
"""(new, stored or None): change the new object as plugins do that are on by default."""
Act = Callable[[Request], Reply | None]
"""Answers a request; None: it is set aside."""
Operations = Mapping[tuple[str, str, str], Act]
"""By group, resource and subresource."""


class Replay:
    """The steps of one scenario, one after the other."""

    def __init__(self, operations: Operations | None = None) -> None:
        """Know no objects; `acts` answer what is no plain write of an object or of a part of it."""
        self._stored: dict[Key, Object] = {}
        self._changed: set[Key] = set()
        self._operations = operations or {}

    def play(self, step: Mapping[str, Any]) -> Result:
        """Return how the answer of the hooks compares with the recorded one."""
        target = target_of(step["path"])
        if target is None:
            return Result(ASIDE, "no such resource")
        result = self._play(target, step)
        self._learn(target, step)
        return result

    def _play(self, target: Target, step: Mapping[str, Any]) -> Result:
        act = self._operations.get((target.row.group, target.row.name, target.subresource))
        strategy = strategy_of(target.row.group, target.row.name)
        if act is None and target.subresource and strategy is not None:
            strategy = strategy.subresources.get(target.subresource)
        if strategy is None:
            return Result(ASIDE, "no hooks")
        if step.get("type") == "application/apply-patch+yaml":
            return Result(ASIDE, "server-side apply")
        if step["method"] not in {"POST", "PUT", "PATCH"}:
            return self._read(target, step)
        request = Request(target, step, strategy, self._stored.get(target.key), self._stored)
        if act is not None:
            is_known = request.stored is not None or not target.subresource
            reply = _refusals(act, request) if is_known else None
            if reply is not None:
                self._stored.update(reply.changed)
                self._changed.update(reply.changed)
        elif step["status"] not in {200, 201, 422}:
            return Result(ASIDE, str(step["status"]))
        elif _TOKEN_VOLUME in json.dumps(step["answer"]):
            return Result(ASIDE, "the plugin ServiceAccount added a volume")
        elif step["method"] == "POST":
            reply = _refusals(create, request)
        elif request.stored is None:
            return Result(ASIDE, "not known")
        elif _lacks_version(request):
            return Result(ASIDE, "no resourceVersion")
        else:
            reply = _refusals(update, request)
        if reply is None:
            return Result(ASIDE, str(step["status"]))
        return compare(step, reply)

    def _read(self, target: Target, step: Mapping[str, Any]) -> Result:
        """Compare what an act has written; the other objects are known from answers anyway."""
        if step["method"] != "GET" or target.key not in self._changed or step["status"] != 200:
            return Result(ASIDE, step["method"])
        ours = normalize(self._stored[target.key], target.row.type)
        return compare(_without_times(step), Reply(200, _without_times(ours), []))

    def _learn(self, target: Target, step: Mapping[str, Any]) -> None:
        """Keep what the answer shows of the object."""
        answer = step["answer"]
        if not isinstance(answer, dict) or answer.get("kind") != target.row.kind.kind:
            if step["method"] == "DELETE" and step["status"] == 200:
                self._stored.pop(target.key, None)
            return
        if "dryRun" in target.query:
            return
        name = answer["metadata"].get("name", "")
        self._changed.discard(target.key)
        strategy = strategy_of(target.row.group, target.row.name)
        stored = normalize(answer, target.row.type)
        if strategy is not None:
            stored = _to_stored(strategy, target.row, stored)
        self._stored[target._replace(name=name).key] = stored


def replay_all(
    names: Iterable[str], operations: Operations | None = None
) -> tuple[Counter[str], list[str]]:
    """Return how often each outcome came, and the differences, each with its scenario."""
    counts: Counter[str] = Counter()
    differences: list[str] = []
    for scenario in (each for name in names for each in recorded(name)):
        replay = Replay(operations)
        for position, step in enumerate(scenario["steps"]):
            result = replay.play(step)
            counts[result.outcome] += 1
            if result.outcome == DIFFERENT:
                place = f"{scenario['name']} [{position}] {step.get('note', '')}"
                differences.append(f"{place}\n    {result.detail}")
    return counts, differences


def target_of(path: str) -> Target | None:
    """Return what a path names; None: nothing in the table."""
    parts = urlsplit(path)
    query = parse_qs(parts.query, keep_blank_values=True)
    names = parts.path.strip("/").split("/")
    group, rest = ("", names[1:]) if names[0] == "api" else (names[1], names[2:])
    version, rest = rest[0], rest[1:]
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in {"status", "finalize"}:
        namespace, rest = rest[1], rest[2:]
    row = TABLE.resource(group, version, rest[0])
    if row is None:
        return None
    name, subresource = (*rest[1:], "", "")[:2]
    return Target(row, namespace, name, subresource, query)


def _lacks_version(request: Request) -> bool:
    """Return whether a PUT does not say of which version it is, though its kind wants that."""
    if request.strategy.allows_unconditional_update or request.step["method"] != "PUT":
        return False
    return not request.step["body"].get("metadata", {}).get("resourceVersion")


def _refusals(operation: Act, request: Request) -> Reply | None:
    try:
        return operation(request)
    except ApiError as error:
        return Reply(error.code, error.status, [])
    except DecodeError as error:
        return Reply(400, {"message": str(error)}, [])


def create(request: Request, admit: Admit | None = None) -> Reply:
    """Answer a POST of an object; `admit` stands for the one of `ADMISSION`."""
    target, strategy, context = request.target, request.strategy, request.context()
    row, answer = target.row, request.step["answer"]
    obj, unknown = request.decoded(request.step["body"])
    obj = _to_stored(strategy, row, obj)
    strategy.default_times(obj, request.now)
    meta = obj.setdefault("metadata", {})
    metadata.match_namespace(meta, target.namespace)
    metadata.wipe_system_fields(meta)
    owners = metadata.drop_duplicate_owners(meta)
    uid = answer.get("metadata", {}).get("uid") or _uid_in(answer.get("message", ""))
    context.new_uid = lambda: uid
    metadata.fill_system_fields(meta, uid, context.now)
    if not meta.get("name") and meta.get("generateName"):
        named = answer.get("details") or answer["metadata"]
        meta["name"] = metadata.generated_name(meta["generateName"], named["name"][-5:])
    admit = admit or ADMISSION.get((row.group, row.name))
    if admit is not None:
        admit(obj, None)
    if strategy.has_generation:
        meta["generation"] = 1
    strategy.prepare_create(obj, context)
    errors = _create_errors(obj, row, strategy, context)
    _refuse(row, meta, errors if strategy.peculiarities.reports_repeated else distinct(errors))
    warnings = [*unknown, *owners, *context.warnings, *strategy.warnings(obj, context)]
    return Reply(201, _to_served(strategy, row, obj), warnings)


def _uid_in(message: str) -> str:
    """Return the UID that a message tells, or any."""
    found = re.search(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", message)
    return found.group() if found else "00000000-0000-4000-8000-000000000000"


def _create_errors(
    obj: Object, row: Resource, strategy: Strategy, context: Context
) -> list[FieldError]:
    meta = obj["metadata"]
    if strategy.peculiarities.checks_metadata_last:
        return strategy.validate(obj, context) or metadata.validate(
            meta, name_is_path_segment, is_namespaced=row.is_namespaced
        )
    check_name = strategy.check_name or name_is_dns_subdomain
    errors = metadata.validate(meta, check_name, is_namespaced=row.is_namespaced)
    if not strategy.allows_any_finalizer:
        finalizers = meta.get("finalizers") or ()
        errors += metadata.validate_finalizer_names("metadata.finalizers", finalizers)
    return errors + strategy.validate(obj, context)


def update(request: Request, admit: Admit | None = None) -> Reply:
    """Answer a PUT or a merge patch of an object, or of one of its parts; `admit` as above."""
    target, strategy, context, old = (
        request.target,
        request.strategy,
        request.context(),
        deepcopy(request.stored),
    )
    assert old is not None
    row, step = target.row, request.step
    body = step["body"]
    main = strategy_of(row.group, row.name)
    assert main is not None
    if step["method"] == "PATCH":
        body = patched(_to_served(main, row, old), body, row.type, step["type"])
    obj, unknown = request.decoded(body)
    obj = _to_stored(main, row, obj)
    main.default_times(obj, request.now)
    meta = obj.setdefault("metadata", {})
    metadata.match_namespace(meta, target.namespace)
    if not meta.get("resourceVersion"):
        meta["resourceVersion"] = old["metadata"]["resourceVersion"]
    owners = metadata.drop_duplicate_owners(meta)
    admit = admit or ADMISSION.get((row.group, row.name))
    if admit is not None and not target.subresource:
        admit(obj, old)
    metadata.keep_system_fields(meta, old["metadata"])
    strategy.prepare_update(obj, old, context)
    meta = obj["metadata"]
    errors = metadata.validate(meta, name_is_path_segment, is_namespaced=row.is_namespaced)
    errors += metadata.validate_update(meta, old["metadata"])
    errors += strategy.validate_update(obj, old, context)
    _refuse(row, meta, distinct(errors))
    warnings = strategy.update_warnings(obj, old, context)
    warnings = [*unknown, *owners, *context.warnings, *warnings]
    return Reply(200, _to_served(main, row, obj), warnings)


def _refuse(row: Resource, meta: Object, errors: list[FieldError]) -> None:
    if errors:
        group = "" if row.group == "events.k8s.io" else row.group
        raise status.invalid(GroupKind(group, row.kind.kind), meta.get("name", ""), errors)


def _to_stored(strategy: Strategy, row: Resource, obj: Object) -> Object:
    conversion = strategy.conversions.get(row.version)
    if conversion is None:
        strategy.default(obj)
        return obj
    conversion.default(obj)
    return conversion.to_stored(obj)


def _to_served(strategy: Strategy, row: Resource, obj: Object) -> Object:
    # What is answered was read from the store, where defaults are filled in again.
    obj = without_empty(obj, row.type)
    strategy.default(obj)
    conversion = strategy.conversions.get(row.version)
    return normalize(obj if conversion is None else conversion.to_served(obj), row.type)


def patched(obj: Object, patch: Any, type_: Type, content_type: str) -> Object:
    """Return an object with a patch of one of the three kinds."""
    if "strategic" in content_type:
        return strategic_merge.apply(obj, patch, type_).obj
    if "json-patch" in content_type:
        return json_patch.apply(obj, json_patch.parse(json.dumps(patch).encode())[0])
    return merge_patch.apply(obj, patch)


def compare(step: Mapping[str, Any], reply: Reply) -> Result:
    """Compare an answer with the recorded one."""
    answer = step["answer"]
    if reply.status != step["status"]:
        return Result(
            DIFFERENT,
            f"status {reply.status}, not {step['status']}:"
            f" {reply.body.get('message', '')!r}, not {answer.get('message', '')!r}",
        )
    if answer.get("kind") == "Status":
        return _compare_status(answer, reply.body)
    differences = list(_differences("", masked(answer), masked(reply.body)))
    if differences:
        return Result(DIFFERENT, "; ".join(differences))
    return _compare_warnings(step.get("warnings") or [], reply.warnings)


def _compare_status(answer: Object, ours: Object) -> Result:
    # Causes that come from maps are in no order.
    if sorted(answer.get("message", "")) != sorted(ours.get("message", "")):
        return Result(DIFFERENT, f"{ours.get('message')!r}\n not {answer.get('message')!r}")
    details, our_details = answer.get("details") or {}, ours.get("details") or {}
    causes, our_causes = (
        sorted(each.get("causes") or [], key=json.dumps) for each in (details, our_details)
    )
    if causes != our_causes:
        return Result(DIFFERENT, f"causes {our_causes!r}\n not {causes!r}")
    for name in ("reason", "code", "status"):
        if answer.get(name) != ours.get(name):
            return Result(DIFFERENT, f"{name} {ours.get(name)!r}, not {answer.get(name)!r}")
    return Result(EQUAL)


def _compare_warnings(theirs: list[str], ours: list[str]) -> Result:
    ours = list(dict.fromkeys(ours))
    theirs = [each for each in theirs if each not in TOLD_OF_RESOURCES]
    if ours != theirs and len("".join(ours)) < WARNINGS_LENGTH_MAX:
        return Result(DIFFERENT, f"warnings {ours!r}\n not {theirs!r}")
    return Result(EQUAL)


def _without_times(value: Any) -> Any:
    text = re.sub(r'"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"', '"<time>"', json.dumps(value))
    return json.loads(text)


def masked(obj: Object) -> Object:
    """Return an object without what every server sets differently."""
    meta = {name: value for name, value in obj.get("metadata", {}).items() if name not in _VOLATILE}
    return {**obj, "metadata": meta}


def _differences(path: str, theirs: Any, ours: Any) -> Iterator[str]:
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for name in theirs.keys() | ours.keys():
            yield from _differences(
                f"{path}.{name}", theirs.get(name, _ABSENT), ours.get(name, _ABSENT)
            )
    elif isinstance(theirs, list) and isinstance(ours, list) and len(theirs) == len(ours):
        for position, (their, our) in enumerate(zip(theirs, ours, strict=True)):
            yield from _differences(f"{path}[{position}]", their, our)
    elif theirs is None and ours == []:
        return  # Protobuf has no empty lists: they come back from the store as null.
    elif theirs != ours or type(theirs) is not type(ours):
        yield f"{path}: {ours!r}, not {theirs!r}"


def admit_pod(pod: Object, old: Object | None) -> None:
    """Set what the plugins ServiceAccount, Priority and DefaultTolerationSeconds set on pods."""
    spec = pod["spec"]
    if old is not None:
        for name in ("priority", "preemptionPolicy"):
            if name in old["spec"]:
                spec.setdefault(name, old["spec"][name])
    else:
        if "kubernetes.io/config.mirror" not in (pod["metadata"].get("annotations") or {}):
            account = spec.setdefault("serviceAccountName", "default")
            spec["serviceAccount"] = account
        spec["priority"] = _PRIORITIES.get(spec.get("priorityClassName", ""), 0)
        spec.setdefault("preemptionPolicy", "PreemptLowerPriority")
    _tolerate_failing_nodes(spec)


def _tolerate_failing_nodes(spec: Object) -> None:
    tolerations = spec.get("tolerations") or []
    for name in ("not-ready", "unreachable"):
        taint = f"node.kubernetes.io/{name}"
        if not any(
            each.get("key", "") in {taint, ""} and each.get("effect", "") in {"NoExecute", ""}
            for each in tolerations
        ):
            tolerations = [
                *tolerations,
                {
                    "key": taint,
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": 300,
                },
            ]
    spec["tolerations"] = tolerations


def taint_node(node: Object, old: Object | None) -> None:
    """Set what the plugin TaintNodesByCondition sets on new nodes."""
    taint = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
    if old is None:
        spec = node.setdefault("spec", {})
        taints = spec.get("taints") or []
        if not any(taint.items() <= each.items() for each in taints):
            spec["taints"] = [*taints, taint]


def protect(finalizer: str) -> Admit:
    """Return what the plugin StorageObjectInUseProtection does to new objects."""

    def admit(obj: Object, old: Object | None) -> None:
        finalizers = obj["metadata"].get("finalizers") or []
        if old is None and finalizer not in finalizers:
            obj["metadata"]["finalizers"] = [*finalizers, finalizer]

    return admit


ADMISSION: Final[Mapping[tuple[str, str], Admit]] = {
    ("", "nodes"): taint_node,
    ("", "persistentvolumeclaims"): protect("kubernetes.io/pvc-protection"),
    ("", "persistentvolumes"): protect("kubernetes.io/pv-protection"),
    ("", "pods"): admit_pod,
    ("storage.k8s.io", "volumeattributesclasses"): protect("kubernetes.io/vac-protection"),
}
"""What plugins that are on by default change in every object of a kind."""

_TOKEN_VOLUME: Final = '"name": "kube-api-access-'
_PRIORITIES: Final = {
    "system-cluster-critical": 2000000000,
    "system-node-critical": 2000001000,
}
_VOLATILE: Final = ("managedFields", "uid", "resourceVersion", "creationTimestamp")
_ABSENT: Final = "<absent>"
