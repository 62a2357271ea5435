"""Fields of disabled features: dropped, unless the stored object uses the feature.

    drop_disabled_fields(spec, None)            a new pod or template
    drop_disabled_fields(spec, old_spec)        an update of one

A feature has one or more field paths. `[]` matches the items of a list, `*` the containers of all
three lists.
"""

from typing import Any, Final

from kvstack.apimachinery.objects.core.containers import all_containers
from kvstack.apimachinery.objects.json_object import Object

_Tree = dict[str, Any]
"""The subtree of the next step, or the number of the feature whose field it is."""
_Use = tuple[int, Object, str]
"""A feature, and the struct and the name of a field of it that is set."""


def _tree(*features: tuple[str, ...]) -> _Tree:
    """Return the feature paths as one tree, so that an object is traversed once."""
    root: _Tree = {}
    for number, paths in enumerate(features):
        for path in paths:
            node = root
            *steps, last = path.replace("[]", ".[]").split(".")
            for step in steps:
                node = node.setdefault(step, {})
            node[last] = number
    return root


_PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")
_HANDLERS: Final = (*_PROBES, "lifecycle.postStart", "lifecycle.preStop")
_SPEC_FEATURES: Final = _tree(
    ("schedulingGroup",),
    ("evictionResponders",),
    ("volumes[].emptyDir.mode",),
    ("*.volumeMounts[].bindMountOptions",),
    ("*.lifecycle.stopSignal",),
    tuple(f"*.{each}.httpGet.protocol" for each in _HANDLERS),
    tuple(f"*.{each}.grpc.mode" for each in _PROBES),
    (
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
_STATUS_FEATURES: Final = _tree(
    ("nodeAllocatableResourceClaimStatuses",),
    ("volumeHealth",),
    (
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


def drop_disabled_fields(spec: Object, old_spec: Object | None) -> None:
    """Drop unused fields of disabled features from a pod's spec."""
    stop_signals = [
        each for each in all_containers(spec) if (each.get("lifecycle") or {}).get("stopSignal")
    ]
    _drop(_SPEC_FEATURES, spec, old_spec)
    for container in stop_signals:
        if not container["lifecycle"]:
            del container["lifecycle"]


def drop_disabled_status_fields(status: Object, old_status: Object | None) -> None:
    """Drop unused fields of disabled features from a pod's status."""
    _drop(_STATUS_FEATURES, status, old_status)


def drop_disabled_template_fields(template: Object | None, old_template: Object | None) -> None:
    """Drop unused fields of disabled features from a pod template."""
    if template is None:
        return
    old_spec = (old_template or {}).get("spec")
    if template.get("spec"):
        drop_disabled_fields(template["spec"], old_spec)
    drop_old_annotations(template.get("metadata"))


def drop_old_annotations(metadata: Object | None) -> None:
    """Drop annotations that held init containers before these were fields."""
    annotations: dict[str, str] | None = (metadata or {}).get("annotations")
    if metadata is None or not annotations:
        return
    if any(each in annotations for each in _OLD_ANNOTATIONS):
        kept = {name: annotations[name] for name in annotations if name not in _OLD_ANNOTATIONS}
        if kept:
            metadata["annotations"] = kept
        else:
            del metadata["annotations"]


def _drop(features: _Tree, obj: Object, old: Object | None) -> None:
    uses: list[_Use] = []
    _find(obj, features, uses)
    if not uses:
        return
    in_use: list[_Use] = []
    if old:
        _find(old, features, in_use)
    kept = {number for number, _, _ in in_use}
    for number, holder, name in uses:
        if number not in kept:
            del holder[name]


def _find(obj: Object, tree: _Tree, uses: list[_Use]) -> None:
    """Collect the fields of an object that a tree matches."""
    for name, below in tree.items():
        if name == "*":
            for each in all_containers(obj):
                _find(each, below, uses)
            continue
        value = obj.get(name)
        if value is None:
            continue
        if isinstance(below, int):
            uses.append((below, obj, name))
        elif "[]" in below:
            for item in value:
                _find(item, below["[]"], uses)
        else:
            _find(value, below, uses)
