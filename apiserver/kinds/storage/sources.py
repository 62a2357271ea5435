"""Sources of persistent volumes.

A volume has exactly one source. Most are those of pods' volumes; those with credentials also have
the namespace of the Secret, as a volume has none. The first source that is given is checked, every
further one is an error. A few have other names in errors than in objects; those names are
upstream's.
"""

from typing import Final

from kvstack.apimachinery.objects.field_errors import (
    REQUIRED,
    child,
    forbidden,
    invalid,
    required,
)
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.names import (
    between,
    check_dns_label,
    check_dns_subdomain,
    length,
)
from kvstack.apiserver.kinds.file_paths import absolute_path, check_no_steps_back
from kvstack.apiserver.kinds.pods.volumes import (
    Source,
    check_azure_disk,
    check_csi_driver_name,
    check_fc,
    check_flex,
    check_flocker,
    check_host_path,
    check_initiator,
    check_quobyte,
)
from kvstack.apiserver.kinds.rules import (
    Errors,
    all_of,
    formatted,
    in_range,
    inside,
    needs,
    needs_formatted,
)

ONE_TOO_MANY: Final = "may not specify more than 1 volume type"

_PORTAL_AND_NAME_MAX: Final = 64
_SECRETS: Final = (
    "controllerPublishSecretRef",
    "controllerExpandSecretRef",
    "nodePublishSecretRef",
    "nodeExpandSecretRef",
)


def check_source(
    spec: Object, path: str, errors: Errors, *, volume_name: str = "", has_affinity: bool = False
) -> None:
    """Check the source in the spec of a volume, which has no name if it is inline."""
    has_source = False
    for source in SOURCES:
        value = spec.get(source.name)
        if value is None:
            continue
        if has_source and source.name != "flexVolume":
            spare = source.spare_name or source.name
            errors.append(forbidden(child(path, spare), ONE_TOO_MANY))
            continue
        has_source = True
        source_path = child(path, source.error_name or source.name)
        if source.rule is not None:
            source.rule(value, source_path, errors)
        elif source.name == "iscsi":
            _check_iscsi(value, source_path, errors, volume_name)
        else:
            _check_local(value, source_path, errors)
            if not has_affinity:
                detail = "Local volume requires node affinity"
                errors.append(required(child(path, "nodeAffinity"), detail))
    if not has_source:
        errors.append(required(path, "must specify a volume type"))


def _check_iscsi(source: Object, path: str, errors: Errors, volume_name: str) -> None:
    portal, initiator = source.get("targetPortal", ""), source.get("initiatorName")
    if not portal:
        errors.append(required(child(path, "targetPortal")))
    if initiator is not None and length(f"{volume_name}:{portal}") > _PORTAL_AND_NAME_MAX:
        detail = (
            "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if"
            " iscsi.initiatorName is specified."
        )
        errors.append(invalid(child(path, "targetportal"), portal, detail))
    _check_initiator(errors, child(path, "iqn"), source.get("iqn", ""))
    _lun(source, path, errors)
    secret = source.get("secretRef")
    if secret is None and (source.get("chapAuthDiscovery") or source.get("chapAuthSession")):
        errors.append(required(child(path, "secretRef")))
    if secret is not None and not secret.get("name"):
        errors.append(required(child(path, "secretRef", "name")))
    if initiator:
        _check_initiator(errors, child(path, "initiatorname"), initiator)
    elif initiator is not None:
        errors.append(invalid(child(path, "initiatorname"), initiator, "must be valid format"))


def _check_initiator(errors: Errors, path: str, name: str) -> None:
    found: Errors = []
    check_initiator(found, path, name)
    # Errors do not mention prefixes of names here.
    errors.extend(
        each if each.reason == REQUIRED else invalid(path, name, "must be valid format")
        for each in found
    )


def _check_local(source: Object, path: str, errors: Errors) -> None:
    if not source.get("path"):
        errors.append(required(child(path, "path")))
    else:
        check_no_steps_back(errors, child(path, "path"), source["path"])


def _check_endpoints_namespace(source: Object, path: str, errors: Errors) -> None:
    namespace, field = source.get("endpointsNamespace"), child(path, "endpointsNamespace")
    if namespace == "":
        detail = "if the endpointnamespace is set, it must be a valid namespace name"
        errors.append(invalid(field, namespace, detail))
    elif namespace is not None:
        errors.extend(invalid(field, namespace, each) for each in check_dns_label(namespace))


def _check_secret_namespace(source: Object, path: str, errors: Errors) -> None:
    if source.get("secretNamespace") == "":
        errors.append(required(child(path, "secretNamespace")))


def _check_csi(source: Object, path: str, errors: Errors) -> None:
    check_csi_driver_name(errors, child(path, "driver"), source.get("driver", ""))
    needs("volumeHandle")(source, path, errors)
    for each in _SECRETS:
        secret = source.get(each)
        if secret is not None:
            _named_secret(secret, child(path, each), errors)


_lun: Final = in_range("lun", 0, 255)
_partition: Final = in_range("partition", 0, 255, between(1, 255))
_full_secret: Final = inside("secretRef", needs("name", "namespace"))
_named_secret: Final = all_of(
    needs_formatted("name", check_dns_subdomain), needs_formatted("namespace", check_dns_label)
)

SOURCES: Final = (
    Source("hostPath", check_host_path),
    Source("gcePersistentDisk", all_of(needs("pdName"), _partition), error_name="persistentDisk"),
    Source("awsElasticBlockStore", all_of(needs("volumeID"), _partition)),
    Source("glusterfs", all_of(needs("endpoints", "path"), _check_endpoints_namespace)),
    Source("flocker", check_flocker),
    Source("nfs", all_of(needs("server", "path"), absolute_path("path"))),
    Source("rbd", needs("monitors", "image")),
    Source("quobyte", check_quobyte),
    Source("cephfs", needs("monitors"), spare_name="cephFS"),
    Source("iscsi", None),
    Source("cinder", all_of(needs("volumeID"), _full_secret)),
    Source("fc", check_fc),
    Source("flexVolume", check_flex),
    Source("azureFile", all_of(needs("secretName", "shareName"), _check_secret_namespace)),
    Source("vsphereVolume", needs("volumePath")),
    Source("photonPersistentDisk", needs("pdID")),
    Source("portworxVolume", needs("volumeID")),
    Source("azureDisk", check_azure_disk),
    Source("scaleIO", needs("gateway", "system", "volumeName")),
    Source("local", None),
    Source(
        "storageos",
        all_of(
            needs_formatted("volumeName", check_dns_label),
            formatted("volumeNamespace", check_dns_label),
            _full_secret,
        ),
    ),
    Source("csi", _check_csi),
)
"""All sources of persistent volumes, in order of evaluation."""

SOURCE_NAMES: Final = frozenset(each.name for each in SOURCES)
