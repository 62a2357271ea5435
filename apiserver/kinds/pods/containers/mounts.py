"""Validation of a container's volume mounts and block devices.

    volumeMounts[0] = {"name": "data", "mountPath": "/data", "subPath": "a/b"}
    volumeDevices[0] = {"name": "disk", "devicePath": "/dev/xvda"}

Several errors of a mount are reported at the list of mounts, as upstream.
"""

from typing import Final

from kvstack.apimachinery.objects.field_errors import (
    child,
    duplicate,
    forbidden,
    index,
    invalid,
    not_found,
    not_supported,
    required,
)
from kvstack.apimachinery.objects.json_object import Object
from kvstack.apimachinery.objects.text.go_text import JsonText
from kvstack.apimachinery.schema.load import enum_values
from kvstack.apiserver.kinds.file_paths import check_descending, has_step_back
from kvstack.apiserver.kinds.pods.scope import SpecScope
from kvstack.apiserver.kinds.rules import Errors

PROPAGATIONS: Final = enum_values("io.k8s.api.core.v1.VolumeMount", "mountPropagation")
RECURSIVE_READ_ONLY: Final = ("Disabled", "Enabled", "IfPossible")
BIND_OPTIONS: Final = ("nodev", "noexec", "nosuid")


def check_mounts(scope: SpecScope, container: Object, path: str) -> None:
    """Check all mounts of a container."""
    mounts = container.get("volumeMounts")
    if not mounts:
        return
    errors = scope.errors
    list_path = child(path, "volumeMounts")
    devices = {each.get("name", ""): each.get("devicePath", "") for each in _devices(container)}
    device_paths = frozenset(devices.values())
    mount_paths: set[str] = set()
    for position, mount in enumerate(mounts):
        item_path = index(list_path, position)
        name, mount_path = mount.get("name", ""), mount.get("mountPath", "")
        if not name:
            errors.append(required(child(item_path, "name")))
        if name not in scope.volumes:
            errors.append(not_found(child(item_path, "name"), name))
        if not mount_path:
            errors.append(required(child(item_path, "mountPath")))
        if mount_path in mount_paths:
            errors.append(invalid(child(item_path, "mountPath"), mount_path, "must be unique"))
        mount_paths.add(mount_path)
        if name in devices:
            message = "must not already exist in volumeDevices"
            errors.append(invalid(child(item_path, "name"), name, message))
        if mount_path in device_paths:
            message = "must not already exist as a path in volumeDevices"
            errors.append(invalid(child(item_path, "mountPath"), mount_path, message))
        _check_sub_path(errors, mount, item_path, list_path)
        if mount.get("mountPropagation") is not None:
            _check_propagation(errors, mount, container, child(list_path, "mountPropagation"))
        if mount.get("recursiveReadOnly") is not None:
            _check_recursive(errors, mount, child(list_path, "recursiveReadOnly"))
        if mount.get("bindMountOptions"):
            _check_bind_options(scope, mount, child(item_path, "bindMountOptions"))


def check_devices(scope: SpecScope, container: Object, path: str) -> None:
    """Check all block devices of a container."""
    devices = _devices(container)
    if not devices:
        return
    list_path = child(path, "volumeDevices")
    mounts = {
        each.get("name", ""): each.get("mountPath", "")
        for each in container.get("volumeMounts") or ()
    }
    names: set[str] = set()
    paths: set[str] = set()
    for position, device in enumerate(devices):
        item_path = index(list_path, position)
        _check_device_name(scope, device.get("name", ""), names, child(item_path, "name"))
        _check_device_path(
            scope.errors, device.get("devicePath", ""), paths, child(item_path, "devicePath")
        )
        _check_device_overlap(scope.errors, device, mounts, item_path)
        if device.get("name"):
            names.add(device["name"])


def is_privileged(container: Object) -> bool:
    """Return whether the container is privileged."""
    context = container.get("securityContext")
    return context is not None and context.get("privileged") is True


def _devices(container: Object) -> list[Object]:
    return container.get("volumeDevices") or []


def _check_sub_path(errors: Errors, mount: Object, item_path: str, list_path: str) -> None:
    sub_path, expression = mount.get("subPath"), mount.get("subPathExpr")
    if sub_path:
        check_descending(errors, child(list_path, "subPath"), sub_path)
    if expression:
        if sub_path:
            message = "subPathExpr and subPath are mutually exclusive"
            errors.append(invalid(child(item_path, "subPathExpr"), expression, message))
        check_descending(errors, child(list_path, "subPathExpr"), expression)


def _check_propagation(errors: Errors, mount: Object, container: Object, path: str) -> None:
    propagation = mount.get("mountPropagation")
    if propagation is None:
        return
    if propagation not in PROPAGATIONS:
        errors.append(not_supported(path, JsonText(propagation), PROPAGATIONS))
    if propagation == "Bidirectional" and not is_privileged(container):
        message = "Bidirectional mount propagation is available only to privileged containers"
        errors.append(forbidden(path, message))


def _check_recursive(errors: Errors, mount: Object, path: str) -> None:
    recursive = mount.get("recursiveReadOnly")
    if recursive is None or recursive == "Disabled":
        return
    if recursive not in RECURSIVE_READ_ONLY:
        errors.append(not_supported(path, JsonText(recursive), RECURSIVE_READ_ONLY))
        return
    if not mount.get("readOnly"):
        errors.append(forbidden(path, "may only be specified when readOnly is true"))
    if mount.get("mountPropagation") not in {None, "None"}:
        message = "may only be specified when mountPropagation is None or not specified"
        errors.append(forbidden(path, message))


def _check_bind_options(scope: SpecScope, mount: Object, path: str) -> None:
    options = mount.get("bindMountOptions")
    if not options:
        return
    errors = scope.errors
    seen: set[str] = set()
    for position, option in enumerate(options):
        if option not in BIND_OPTIONS:
            errors.append(not_supported(index(path, position), option, BIND_OPTIONS))
        if option in seen:
            errors.append(duplicate(index(path, position), option))
        seen.add(option)
    if scope.volumes.get(mount.get("name", ""), {}).get("image") is not None:
        message = "bindMountOptions may not be used with image volumes"
        errors.append(invalid(path, options, message))


def _check_device_name(scope: SpecScope, name: str, names: set[str], path: str) -> None:
    errors = scope.errors
    if not name:
        errors.append(required(path))
    if name in names:
        errors.append(invalid(path, name, "must be unique"))
    volume = scope.volumes.get(name)
    if volume is None:
        errors.append(not_found(path, name))
    elif volume.get("persistentVolumeClaim") is None and volume.get("ephemeral") is None:
        message = (
            "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"
        )
        errors.append(invalid(path, name, message))


def _check_device_path(errors: Errors, device: str, paths: set[str], path: str) -> None:
    if not device:
        errors.append(required(path))
    if device in paths:
        errors.append(invalid(path, device, "must be unique"))
    if has_step_back(device):
        errors.append(invalid(path, device, "can not contain backsteps ('..')"))
    else:
        paths.add(device)


def _check_device_overlap(
    errors: Errors, device: Object, mounts: dict[str, str], path: str
) -> None:
    name, device_path = device.get("name", ""), device.get("devicePath", "")
    if name in mounts:
        message = "must not already exist in volumeMounts"
        errors.append(invalid(child(path, "name"), name, message))
    if device_path in mounts.values():
        message = "must not already exist as a path in volumeMounts"
        errors.append(invalid(child(path, "devicePath"), device_path, message))
