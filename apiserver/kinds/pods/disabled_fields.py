"""Fields of features that are off: dropped, unless the stored object has the feature in use.

    drop_disabled_fields(spec, None)            a new pod or template
    drop_disabled_fields(spec, old_spec)        an update of one

A feature is one or more paths of fields. `[]` stands for the items of a list, `*` for the
containers of all three lists.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from kvstack.apiserver.kinds.pods.scope import all_containers

Obj = dict[str, Any]
Path = tuple[str, ...]


def _paths(*texts: str) -> tuple[Path, ...]:
    return tuple(tuple(text.replace("[]", ".[]").split(".")) for text in texts)


_PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")
_HANDLERS: Final = (*_PROBES, "lifecycle.postStart", "lifecycle.preStop")
_SPEC_FEATURES: Final = (
    _paths("schedulingGroup"),
    _paths("evictionResponders"),
    _paths("volumes[].emptyDir.mode"),
    _paths("*.volumeMounts[].bindMountOptions"),
    _paths("*.lifecycle.stopSignal"),
    _paths(*(f"*.{each}.httpGet.protocol" for each in _HANDLERS)),
    _paths(*(f"*.{each}.grpc.mode" for each in _PROBES)),
    _paths(
        "volumes[].secret.defaultUser",
        "volumes[].secret.items[].user",
        "volumes[].configMap.defaultUser",
        "volumes[].configMap.items[].user",
        "volumes[].downwardAPI.defaultUser",
        "volumes[].downwardAPI.items[].user",
        "volumes[].projected.defaultUser",
        "volumes[].projected.sources[].secret.items[].user",
        "volumes[].projected.sources[].configMap.items[].user",
        "volumes[].projected.sources[].downwardAPI.items[].user",
        "volumes[].projected.sources[].serviceAccountToken.user",
        "volumes[].projected.sources[].clusterTrustBundle.user",
        "volumes[].projected.sources[].podCertificate.user",
    ),
)
_STATUS_FEATURES: Final = (
    _paths("nodeAllocatableResourceClaimStatuses"),
    _paths("volumeHealth"),
    _paths(
        "containerStatuses[].volumeMounts[].volumeStatus",
        "initContainerStatuses[].volumeMounts[].volumeStatus",
        "ephemeralContainerStatuses[].volumeMounts[].volumeStatus",
    ),
)
_OLD_ANNOTATIONS: Final = (
    "pod.beta.kubernetes.io/init-containers",
    "pod.alpha.kubernetes.io/init-containers",
    "pod.beta.kubernetes.io/init-container-statuses",
    "pod.alpha.kubernetes.io/init-container-statuses",
)


def drop_disabled_fields(spec: Obj, old_spec: Obj | None) -> None:
    """Drop the fields of a pod's spec whose features are off and not in use."""
    stop_signals = [
        each for each in all_containers(spec) if (each.get("lifecycle") or {}).get("stopSignal")
    ]
    _drop(_SPEC_FEATURES, spec, old_spec)
    for container in stop_signals:
        if not container["lifecycle"]:
            del container["lifecycle"]


def drop_disabled_status_fields(status: Obj, old_status: Obj | None) -> None:
    """Drop the fields of a pod's status whose features are off and not in use."""
    _drop(_STATUS_FEATURES, status, old_status)


def drop_disabled_template_fields(template: Obj | None, old_template: Obj | None) -> None:
    """Drop the fields of a template of pods whose features are off and not in use."""
    if template is None:
        return
    old_spec = (old_template or {}).get("spec")
    if template.get("spec"):
        drop_disabled_fields(template["spec"], old_spec)
    drop_old_annotations(template.get("metadata"))


def drop_old_annotations(metadata: Obj | None) -> None:
    """Drop annotations that held init containers before they were fields."""
    annotations: Mapping[str, str] | None = (metadata or {}).get("annotations")
    if metadata is None or not annotations:
        return
    if any(each in annotations for each in _OLD_ANNOTATIONS):
        kept = {name: annotations[name] for name in annotations if name not in _OLD_ANNOTATIONS}
        if kept:
            metadata["annotations"] = kept
        else:
            del metadata["annotations"]


def _drop(features: Sequence[tuple[Path, ...]], obj: Obj, old: Obj | None) -> None:
    for paths in features:
        found = [(holder, path[-1]) for path in paths for holder in _holders(obj, path)]
        if found and not (old and any(True for path in paths for _ in _holders(old, path))):
            for holder, name in found:
                del holder[name]


def _holders(obj: Obj, path: Path) -> Iterator[Obj]:
    """Yield the structs that have the field that a path leads to."""
    name, *rest = path
    if name == "*":
        for container in all_containers(obj):
            yield from _holders(container, tuple(rest))
        return
    value = obj.get(name)
    if value is None:
        return
    if not rest:
        yield obj
    elif rest[0] == "[]":
        tail = tuple(rest[1:])
        for item in value:
            yield from _holders(item, tail)
    else:
        yield from _holders(value, tuple(rest))
