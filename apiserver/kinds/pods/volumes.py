"""Validation of a pod's volumes.

    volumes[3] = {"name": "data", "nfs": {"server": "s", "path": "/p"}}

A volume has exactly one source. `SOURCES` lists all of them in order of evaluation: the first that
is given is checked, every further one is an error. A few sources have other names in errors than in
the object; those names are upstream's.
"""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from kvstack.apimachinery.objects.field_errors import (
    child,
    duplicate,
    forbidden,
    index,
    invalid,
    key,
    not_supported,
    required,
    too_long,
)
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.names import (
    between,
    check_dns_label,
    check_dns_subdomain,
    length,
    name_is_dns_subdomain,
)
from kvstack.apimachinery.objects.quantity import parse
from kvstack.apimachinery.schema.load import enum_values
from kvstack.apiserver.kinds.claim_specs import check_claim_template
from kvstack.apiserver.kinds.file_paths import (
    absolute_path,
    check_no_steps_back,
    descending_path,
)
from kvstack.apiserver.kinds.pods.projected_volumes import check_projected
from kvstack.apiserver.kinds.pods.scope import SpecScope
from kvstack.apiserver.kinds.pods.volume_files import (
    check_downward_file,
    check_key_to_path,
    default_mode_and_user,
)
from kvstack.apiserver.kinds.rules import (
    Errors,
    Rule,
    all_of,
    each,
    formatted,
    in_range,
    inside,
    needs,
    needs_formatted,
    needs_one_of,
    one_of,
)

PULL_POLICIES: Final = enum_values("io.k8s.api.core.v1.Container", "imagePullPolicy")
CSI_DRIVER_NAME_MAX: Final = 63

_HOST_PATH_TYPES: Final = enum_values("io.k8s.api.core.v1.HostPathVolumeSource", "type")
_AZURE_CACHING: Final = enum_values("io.k8s.api.core.v1.AzureDiskVolumeSource", "cachingMode")
_AZURE_KINDS: Final = enum_values("io.k8s.api.core.v1.AzureDiskVolumeSource", "kind")
_ONE_TOO_MANY: Final = "may not specify more than 1 volume type"
_PARTITION_ERROR: Final = between(1, 255)
_ISCSI_NAME_MAX: Final = 64
_QUOBYTE_REGISTRY: Final = "must be a host:port pair or multiple pairs separated by commas"
_DISK_URIS: Final = {
    True: (
        "/subscriptions/",
        "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/"
        "{disk-id}",
    ),
    False: (
        "https://",
        "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd",
    ),
}
"""Prefixes of disk URIs, and their form in errors: of managed disks and of others."""
_INITIATORS: Final = {
    "iqn": re.compile(r"iqn\.\d{4}-\d{2}\.([A-Za-z0-9.-]+)(:[^,;*&$|\t\n\f\r ]+)\Z", re.ASCII),
    "eui": re.compile(r"\Aeui.[A-Za-z0-9]{16}\Z"),
    "naa": re.compile(r"\Anaa.[A-Za-z0-9]{32}\Z"),
}
"""Forms of the names of iSCSI initiators and targets, by prefix."""


class Source(NamedTuple):
    """One kind of volume source."""

    name: str
    """Its field in the volume."""
    rule: Rule | None
    """The check of its fields; None: see `check_volume`."""
    error_name: str = ""
    """Its name in the paths of errors, if different."""
    spare_name: str = ""
    """Its name in the error about a second source, if different."""


def check_host_path(source: Object, path: str, errors: Errors) -> None:
    """Check a hostPath."""
    host_path = source.get("path")
    if not host_path:
        errors.append(required(child(path, "path")))
        return
    check_no_steps_back(errors, child(path, "path"), host_path)
    _host_path_type(source, path, errors)


def check_iscsi(source: Object, path: str, errors: Errors) -> None:
    """Check an iSCSI target, in pods and persistent volumes."""
    _iscsi_target(source, path, errors)
    check_initiator(errors, child(path, "iqn"), source.get("iqn", ""))
    _iscsi_lun(source, path, errors)
    has_chap = source.get("chapAuthDiscovery") or source.get("chapAuthSession")
    if has_chap and source.get("secretRef") is None:
        errors.append(required(child(path, "secretRef")))
    initiator = source.get("initiatorName")
    if initiator is not None:
        _check_initiator_form(errors, child(path, "initiatorname"), initiator)


def check_initiator(errors: Errors, path: str, name: str) -> None:
    """Check the name of an iSCSI target."""
    if not name:
        errors.append(required(path))
    else:
        _check_initiator_form(errors, path, name)


def check_fc(source: Object, path: str, errors: Errors) -> None:
    """Check a Fibre Channel volume: target WWNs and LUN, or WWIDs."""
    targets, identifiers = source.get("targetWWNs"), source.get("wwids")
    if not targets and not identifiers:
        message = "must specify either targetWWNs or wwids, but not both"
        errors.append(required(child(path, "targetWWNs"), message))
    if targets and identifiers:
        message = "targetWWNs and wwids can not be specified simultaneously"
        errors.append(invalid(child(path, "targetWWNs"), targets, message))
    if targets:
        if source.get("lun") is None:
            message = "lun is required if targetWWNs is specified"
            errors.append(required(child(path, "lun"), message))
        else:
            _lun(source, path, errors)


def check_quobyte(source: Object, path: str, errors: Errors) -> None:
    """Check a Quobyte volume."""
    registry = source.get("registry", "")
    if not registry:
        errors.append(required(child(path, "registry"), _QUOBYTE_REGISTRY))
    elif length(source.get("tenant", "")) > 64:
        message = "must be a UUID and may not exceed a length of 64 characters"
        errors.append(required(child(path, "tenant"), message))
    else:
        errors.extend(
            invalid(child(path, "registry"), registry, _QUOBYTE_REGISTRY)
            for pair in registry.split(",")
            if not _is_host_and_port(pair)
        )
    needs("volume")(source, path, errors)


def check_flocker(source: Object, path: str, errors: Errors) -> None:
    """Check a dataset of Flocker, which has a name or a UUID."""
    name, uuid = source.get("datasetName", ""), source.get("datasetUUID")
    if not name and not uuid:
        errors.append(required(path, "one of datasetName and datasetUUID is required"))
    if name and uuid:
        message = "datasetName and datasetUUID can not be specified simultaneously"
        errors.append(invalid(path, "resource", message))
    if "/" in name:
        errors.append(invalid(child(path, "datasetName"), name, "must not contain '/'"))


def check_flex(source: Object, path: str, errors: Errors) -> None:
    """Check a FlexVolume, whose options belong to its driver."""
    needs("driver")(source, path, errors)
    for name in source.get("options") or ():
        domain = f".{name.partition('/')[0].lower()}"
        if domain.endswith((".kubernetes.io", ".k8s.io")):
            message = "kubernetes.io and k8s.io namespaces are reserved"
            errors.append(invalid(key(child(path, "options"), name), name, message))


def check_azure_disk(source: Object, path: str, errors: Errors) -> None:
    """Check an Azure disk, whose URI must match its kind."""
    _azure_disk(source, path, errors)
    kind = source.get("kind")
    if kind is not None:
        uri = source.get("diskURI", "")
        prefix, form = _DISK_URIS[kind == "Managed"]
        if not uri.startswith(prefix):
            errors.append(not_supported(child(path, "diskURI"), uri, (form,)))


def check_csi_driver_name(errors: Errors, path: str, name: str) -> None:
    """Check the name of a CSI driver."""
    if not name:
        errors.append(required(path))
        return
    if length(name) > CSI_DRIVER_NAME_MAX:
        errors.append(too_long(path, CSI_DRIVER_NAME_MAX))
    errors.extend(invalid(path, name, each) for each in check_dns_subdomain(name.lower()))


def check_csi(source: Object, path: str, errors: Errors) -> None:
    """Check a CSI volume."""
    check_csi_driver_name(errors, child(path, "driver"), source.get("driver", ""))
    secret = source.get("nodePublishSecretRef")
    if secret is not None:
        name = secret.get("name", "")
        if not name:
            errors.append(required(child(path, "nodePublishSecretRef", "name")))
        else:
            _add_name_errors(errors, child(path, "name"), name)


def check_empty_dir(source: Object, path: str, errors: Errors) -> None:
    """Check an emptyDir."""
    limit = source.get("sizeLimit")
    if limit is not None and parse(limit).sign < 0:
        message = "SizeLimit field must be a valid resource quantity"
        errors.append(forbidden(child(path, "sizeLimit"), message))
    _empty_dir_mode(source, path, errors)


def check_downward_api(source: Object, path: str, errors: Errors) -> None:
    """Check a downwardAPI volume; errors of its files have the path of the volume."""
    default_mode_and_user(source, path, errors)
    for item in source.get("items") or ():
        check_downward_file(item, path, errors)


def check_volumes(scope: SpecScope) -> None:
    """Check all volumes and record the valid ones in `scope.volumes`."""
    volumes: Sequence[Object] = scope.spec.get("volumes") or ()
    created = _claims_to_create(scope.pod_name, volumes)
    list_path = child(scope.path, "volumes")
    for position, volume in enumerate(volumes):
        path = index(list_path, position)
        errors: Errors = []
        check_volume(scope, volume, path, errors)
        name = volume.get("name", "")
        _volume_name(volume, path, errors)
        if name in scope.volumes:
            errors.append(duplicate(child(path, "name"), name))
        if errors:
            scope.errors.extend(errors)
        else:
            scope.volumes[name] = volume
        claim = volume.get("persistentVolumeClaim")
        if claim is not None and claim.get("claimName") in created:
            message = "must not reference a PVC that gets created for an ephemeral volume"
            claim_path = child(path, "persistentVolumeClaim", "claimName")
            scope.errors.append(invalid(claim_path, claim["claimName"], message))


def check_volume(scope: SpecScope, volume: Object, path: str, errors: Errors) -> None:
    """Check the source of one volume."""
    has_source = False
    given = [name for name in volume if volume[name] is not None and name in _BY_NAME]
    # Nearly every volume has one source; of several the order of the table counts.
    for source in [_BY_NAME[given[0]]] if len(given) == 1 else SOURCES:
        value = volume.get(source.name)
        if value is None:
            continue
        if has_source and source.name != "emptyDir":
            spare = source.spare_name or source.name
            errors.append(forbidden(child(path, spare), _ONE_TOO_MANY))
        else:
            has_source = True
            _check_source(scope, source, volume, path, errors)
        if source.name == "iscsi":
            _check_iscsi_length(volume, path, errors)
    if not has_source:
        errors.append(required(path, "must specify a volume type"))


def _check_source(
    scope: SpecScope, source: Source, volume: Object, path: str, errors: Errors
) -> None:
    value = volume[source.name]
    source_path = child(path, source.error_name or source.name)
    if source.rule is not None:
        source.rule(value, source_path, errors)
    elif source.name == "projected":
        check_projected(scope, value, source_path, errors)
    elif source.name == "ephemeral":
        _check_ephemeral(scope, volume, path, errors)
    else:
        if not scope.tolerances.empty_image_reference:
            needs("reference")(value, source_path, errors)
        _pull_policy(value, source_path, errors)


def _check_ephemeral(scope: SpecScope, volume: Object, path: str, errors: Errors) -> None:
    template_path = child(path, "ephemeral", "volumeClaimTemplate")
    template = volume["ephemeral"].get("volumeClaimTemplate")
    if template is None:
        errors.append(required(template_path))
    else:
        check_claim_template(template, template_path, errors)
    name = volume.get("name", "")
    if scope.pod_name and name:
        claim = f"{scope.pod_name}-{name}"
        errors.extend(
            invalid(child(path, "name"), name, f'PVC name "{claim}": {each}')
            for each in name_is_dns_subdomain(claim, False)
        )


def _check_iscsi_length(volume: Object, path: str, errors: Errors) -> None:
    name, source = volume.get("name", ""), volume["iscsi"]
    portal = source.get("targetPortal", "")
    if source.get("initiatorName") is not None and length(f"{name}:{portal}") > _ISCSI_NAME_MAX:
        message = (
            "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if"
            " iscsi.initiatorName is specified."
        )
        errors.append(invalid(child(path, "name"), name, message))


def _check_initiator_form(errors: Errors, path: str, name: str) -> None:
    form = _INITIATORS.get(name[:3])
    if form is None:
        message = "must be valid format starting with iqn, eui, or naa"
        errors.append(invalid(path, name, message))
    elif form.search(name) is None:
        errors.append(invalid(path, name, "must be valid format"))


def _claims_to_create(pod_name: str, volumes: Sequence[Object]) -> set[str]:
    if not pod_name:
        return set()
    return {
        f"{pod_name}-{each.get('name', '')}"
        for each in volumes
        if each.get("ephemeral") is not None
    }


def _is_host_and_port(text: str) -> bool:
    host, colon, _ = text.rpartition(":")
    if not colon:
        return False
    if host.startswith("["):
        return host.endswith("]") and not set(host[1:-1]) & set("[]")
    return not set(text) & set("[]") and ":" not in host


def _add_name_errors(errors: Errors, path: str, name: str) -> None:
    errors.extend(invalid(path, name, each) for each in name_is_dns_subdomain(name, False))


_lun: Final = in_range("lun", 0, 255)
_volume_name: Final = needs_formatted("name", check_dns_label)
_pull_policy: Final = needs_one_of("pullPolicy", PULL_POLICIES)
_host_path_type: Final = one_of("type", _HOST_PATH_TYPES)
_iscsi_target: Final = needs("targetPortal")
_iscsi_lun: Final = _lun
_empty_dir_mode: Final = in_range(
    "mode", 0, 0o1777, "must be a number between 0 and 01777 (octal), both inclusive"
)
_azure_disk: Final = all_of(
    needs("diskName", "diskURI"),
    one_of("cachingMode", _AZURE_CACHING),
    one_of("kind", _AZURE_KINDS),
)
_partition: Final = in_range("partition", 0, 255, _PARTITION_ERROR)
_named_secret: Final = inside("secretRef", needs("name"))
_items: Final = each("items", check_key_to_path)

SOURCES: Final = (
    Source("emptyDir", check_empty_dir),
    Source("hostPath", check_host_path),
    Source("gitRepo", all_of(needs("repository"), descending_path("directory"))),
    Source("gcePersistentDisk", all_of(needs("pdName"), _partition), error_name="persistentDisk"),
    Source("awsElasticBlockStore", all_of(needs("volumeID"), _partition)),
    Source("secret", all_of(needs("secretName"), default_mode_and_user, _items)),
    Source("nfs", all_of(needs("server", "path"), absolute_path("path"))),
    Source("iscsi", check_iscsi),
    Source("glusterfs", needs("endpoints", "path")),
    Source("flocker", check_flocker),
    Source("persistentVolumeClaim", needs("claimName")),
    Source("rbd", needs("monitors", "image")),
    Source("cinder", all_of(needs("volumeID"), _named_secret)),
    Source("cephfs", needs("monitors"), spare_name="cephFS"),
    Source("quobyte", check_quobyte),
    Source("downwardAPI", check_downward_api, spare_name="downwarAPI"),
    Source("fc", check_fc),
    Source("flexVolume", check_flex),
    Source("configMap", all_of(needs("name"), default_mode_and_user, _items)),
    Source("azureFile", needs("secretName", "shareName")),
    Source("vsphereVolume", needs("volumePath")),
    Source("photonPersistentDisk", needs("pdID")),
    Source("portworxVolume", needs("volumeID")),
    Source("azureDisk", check_azure_disk),
    Source(
        "storageos",
        all_of(
            needs_formatted("volumeName", check_dns_label),
            formatted("volumeNamespace", check_dns_label),
            _named_secret,
        ),
    ),
    Source("projected", None),
    Source("scaleIO", needs("gateway", "system", "volumeName")),
    Source("csi", check_csi),
    Source("ephemeral", None),
    Source("image", None),
)
"""All volume sources, in order of evaluation."""
_BY_NAME: Final = {each.name: each for each in SOURCES}
