"""The volumes of a pod as directories of the node, and the mounts of containers.

    ROOT/pods/<uid>/volumes/kubernetes.io~empty-dir/<name>/
    ROOT/pods/<uid>/volumes/kubernetes.io~configmap/<name>/     …secret, projected, downward-api
    ROOT/pods/<uid>/etc-hosts                    /etc/hosts of all containers

Contents of the API are real files in a directory of their own, which `..data` points to, and the
names that containers see are links to it: a reader sees all of one version.
"""

import errno
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Final

from kvstack.agents.kubelet.disk import mount_table
from kvstack.agents.kubelet.disk.removal import remove_tree
from kvstack.agents.kubelet.disk.tree_walk import entries_below
from kvstack.agents.kubelet.pods.environment import (
    ConfigurationError,
    env_file_references,
    expand,
    references_of,
)
from kvstack.agents.kubelet.pods.files import File, Files
from kvstack.agents.kubelet.pods.sandboxes import domain, hostname
from kvstack.agents.kubelet.runtime.process.shim import rooted, syscalls
from kvstack.agents.kubelet.runtime.runtime import DeviceFile, Mount
from kvstack.apimachinery.objects.json_object import Object

_DATA: Final = "..data"
_ENV_FILE_MAX: Final = 64 << 10
_HOSTS: Final = """\
# Kubernetes-managed hosts file.
127.0.0.1\tlocalhost
::1\tlocalhost ip6-localhost ip6-loopback
fe00::0\tip6-localnet
fe00::0\tip6-mcastprefix
fe00::1\tip6-allnodes
fe00::2\tip6-allrouters
"""
_HOST_NETWORK: Final = "# Kubernetes-managed hosts file (host network).\n"
_PLUGINS: Final = {
    "configMap": "kubernetes.io~configmap",
    "secret": "kubernetes.io~secret",
    "downwardAPI": "kubernetes.io~downward-api",
    "projected": "kubernetes.io~projected",
}
_OF_DRIVERS: Final = "kubernetes.io~csi"
_CHECKS: Final = {
    "Directory": (Path.is_dir, "directory"),
    "File": (Path.is_file, "file"),
    "Socket": (Path.is_socket, "socket"),
    "CharDevice": (Path.is_char_device, "character device"),
    "BlockDevice": (Path.is_block_device, "block device"),
}


def empty_directory(directory: Path, volume: Object, size_bytes: int) -> Path:
    """Make an emptyDir; return where it is; raises OSError.

    size_bytes: of one in memory; 0: no limit.
    """
    name: str = volume["name"]
    path = directory / "volumes" / "kubernetes.io~empty-dir" / name
    is_in_memory = (volume.get("emptyDir") or {}).get("medium") == "Memory"
    if path.is_dir() and (not is_in_memory or path.is_mount()):
        return path
    path.mkdir(parents=True, exist_ok=True)
    if is_in_memory:
        _mount_memory(path, f"mode=777,size={size_bytes}" if size_bytes else "mode=777")
    else:
        path.chmod(0o777)
    return path


def written(directory: Path, volume: Object, files: Files, group: int | None) -> Path:
    """Write a volume with contents from the API; return its path.

    group: to which its files belong, None: root's. Raises ConfigurationError and OSError.
    """
    field, kind = next((field, plugin) for field, plugin in _PLUGINS.items() if field in volume)
    name: str = volume["name"]
    path = directory / "volumes" / kind / name
    path.mkdir(parents=True, exist_ok=True)
    # One that was filled on the disk stays there: containers see it.
    if field != "configMap" and not path.is_mount() and not (path / _DATA).is_symlink():
        _mount_memory(path, "mode=755")
    path.chmod(0o755)
    _write(path, files, group)
    return path


def _mount_memory(location: Path, options: str) -> None:
    """Mount a file system in memory that never reaches a disk, if the kernel can; OSError."""
    flags = syscalls.MS_NOSUID | syscalls.MS_NODEV
    try:
        syscalls.mount("tmpfs", str(location), "tmpfs", flags, f"{options},noswap")
    except OSError as error:
        if error.errno != errno.EINVAL:  # the option does not exist before Linux 6.4
            raise
        syscalls.mount("tmpfs", str(location), "tmpfs", flags, options)


def give_to_group(directory: Path, group: int, policy: str) -> None:
    """Give a volume to a group; policy: OnRootMismatch checks only its root.

    Containers may replace files by links meanwhile: no link is followed.
    """
    found = directory.stat()
    if policy == "OnRootMismatch" and found.st_gid == group and found.st_mode & stat.S_ISGID:
        return
    root = rooted.open_root(str(directory))
    try:
        _give(root, group)
        for held, name, _ in entries_below(root):
            _give_entry(held, name, group)
    finally:
        os.close(root)


def _give_entry(directory: int, name: str, group: int) -> None:
    try:
        descriptor = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    except FileNotFoundError:
        return  # a container has removed it
    try:
        if not stat.S_ISLNK(os.fstat(descriptor).st_mode):
            _give(descriptor, group)
    finally:
        os.close(descriptor)


def _give(held: int, group: int) -> None:
    """Give what a descriptor stands for to a group."""
    path = rooted.path_of(held)
    os.chown(path, -1, group)
    mode = os.fstat(held).st_mode
    os.chmod(path, stat.S_IMODE(mode) | (0o2770 if stat.S_ISDIR(mode) else 0o660))


def host_path(source: Object) -> Path:
    """Return a path of the node, created if requested; ConfigurationError, OSError."""
    path, kind = Path(source["path"]), source.get("type") or ""
    if kind == "DirectoryOrCreate" and not path.exists():
        path.mkdir(mode=0o755, parents=True)
    elif kind == "FileOrCreate" and not path.exists():
        path.touch(mode=0o644)
    elif not kind and not path.exists():
        path.mkdir(mode=0o755, parents=True)
    kind = kind.removesuffix("OrCreate")
    if kind in _CHECKS:
        check, text = _CHECKS[kind]
        if not check(path):
            what = _kind_of(path)
            raise ConfigurationError(f"hostPath type check failed: {path} is not a {text}{what}")
    return path


def _kind_of(path: Path) -> str:
    """Return what a place is instead."""
    if not path.exists():
        return f", unable to determine its type: stat {path}: no such file or directory"
    return next((f", it's a {kind}" for kind, (check, _) in _CHECKS.items() if check(path)), "")


def _write(directory: Path, files: Files, group: int | None) -> None:
    """Put contents in place at once; what is the same is left alone."""
    link = directory / _DATA
    old = os.readlink(link) if link.is_symlink() else ""
    if old and _read(directory / old) == {
        path: (each.data, _mode(each, group), each.user or os.geteuid())
        for path, each in files.items()
    }:
        return
    stamp = time.strftime("..%Y_%m_%d_%H_%M_%S.", time.gmtime())
    fresh = Path(tempfile.mkdtemp(prefix=stamp, dir=directory))
    fresh.chmod(0o755)
    for path, each in files.items():
        _write_file(fresh, path, each, group)
    waiting = directory / "..data_tmp"
    waiting.unlink(missing_ok=True)
    waiting.symlink_to(fresh.name)
    waiting.replace(link)
    wanted = {PurePosixPath(path).parts[0] for path in files}
    for name in wanted:
        if not (directory / name).is_symlink():
            (directory / name).symlink_to(f"{_DATA}/{name}")
    for location in directory.iterdir():
        if not location.name.startswith("..") and location.name not in wanted:
            location.unlink()
        elif location.is_dir() and not location.is_symlink() and location != fresh:
            shutil.rmtree(location)  # what was shown before, or of a write that broke off


def _write_file(fresh: Path, path: str, file: File, group: int | None) -> None:
    parts = PurePosixPath(path).parts
    if ".." in parts or path.startswith(("/", "..")):
        raise ConfigurationError(f"invalid path {path}")
    target = fresh / path
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(file.data)
    if file.user is not None or group is not None:
        os.chown(target, -1 if file.user is None else file.user, -1 if group is None else group)
    target.chmod(_mode(file, group))


def _mode(file: File, group: int | None) -> int:
    """Return the mode of a file; the group of a volume may read it."""
    return file.mode if group is None else file.mode | 0o440


def _read(directory: Path) -> dict[str, tuple[bytes, int, int]]:
    return {
        str(each.relative_to(directory)): (each.read_bytes(), found.st_mode & 0o7777, found.st_uid)
        for each in directory.rglob("*")
        if each.is_file() and (found := each.stat())
    }


def mounts(
    pod: Object,
    container: Object,
    sources: Mapping[str, tuple[Path, bool]],
    environment: Mapping[str, str],
    images: Mapping[str, tuple[str, str]],
) -> list[Mount]:
    """Return what a container mounts of volumes; sources: by name, with whether to read only.

    images: of volumes that are images, by name: reference and id. Raises ConfigurationError.
    """
    mounted = []
    named = {each["name"] for each in pod["spec"].get("volumes") or () if "hostPath" in each}
    for mount in container.get("volumeMounts") or ():
        sub_path = mount.get("subPath") or _expanded(mount.get("subPathExpr") or "", environment)
        if image := images.get(mount["name"]):
            _check_sub_path(sub_path)
            reference, image_id = image
            mounted.append(
                Mount(
                    sub_path,
                    mount["mountPath"],
                    is_read_only=True,
                    image=reference,
                    image_id=image_id,
                )
            )
            continue
        source, is_read_only = sources[mount["name"]]
        if sub_path:
            source = _sub_path(source, sub_path)
        propagation = mount.get("mountPropagation") or "None"
        is_read_only = is_read_only or bool(mount.get("readOnly"))
        mounted.append(
            Mount(
                str(source),
                mount["mountPath"],
                is_read_only,
                propagation,
                is_below=bool(sub_path),
                is_recursive=is_read_only and _is_recursive(mount),
                is_host_path=mount["name"] in named,
            )
        )
    return mounted


def devices(container: Object, sources: Mapping[str, tuple[Path, bool]]) -> list[DeviceFile]:
    """Return the volumes that a container has as block devices."""
    found = []
    for each in container.get("volumeDevices") or ():
        source, is_read_only = sources[each["name"]]
        access = "rm" if is_read_only else "rwm"
        found.append(DeviceFile(str(source), each["devicePath"], access, is_volume=True))
    return found


def _is_recursive(mount: Object) -> bool:
    """Whether mounts below a mount are read-only, too."""
    return mount.get("recursiveReadOnly") in ("Enabled", "IfPossible")


def env_files(
    container: Object, sources: Mapping[str, tuple[Path, bool]]
) -> dict[tuple[str, str], str | None]:
    """Return what stands in the files that a container's variables come from.

    Raises ConfigurationError.
    """
    contents: dict[tuple[str, str], str | None] = {}
    for volume, path in env_file_references(container):
        if volume not in sources:
            raise ConfigurationError(
                f'volume "{volume}" of an environment variable file is missing'
            )
        data = _env_file(sources[volume][0], path)
        contents[volume, path] = None if data is None else data.decode("utf-8", "replace")
    return contents


def _env_file(volume: Path, path: str) -> bytes | None:
    """Return the contents of a file of a volume; None: it does not exist. ConfigurationError."""
    inside = _inside(volume, path)
    root = rooted.open_root(str(volume))
    try:
        descriptor = rooted.find(root, inside, beneath=True)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise _outside(path, error) from error
    finally:
        os.close(root)
    try:
        return rooted.read_held(descriptor, path, _ENV_FILE_MAX)
    except OSError as error:
        if error.errno != errno.EFBIG:
            raise
        text = f'environment variable file "{path}" is larger than {_ENV_FILE_MAX} bytes'
        raise ConfigurationError(text) from error
    finally:
        os.close(descriptor)


def _expanded(text: str, environment: Mapping[str, str]) -> str:
    if not text:
        return ""
    found = expand(text, environment)
    for name in references_of(text):
        if not environment.get(name):
            raise ConfigurationError(f'missing value for "{name}"')
    return found


def _check_sub_path(sub_path: str) -> None:
    if sub_path.startswith("/") or ".." in PurePosixPath(sub_path).parts:
        raise ConfigurationError(f"subPath {sub_path} must not lead out of its volume")


def _sub_path(volume: Path, sub_path: str) -> Path:
    """Return a path in a volume, created if missing; links must not lead out of it.

    The path has no links; mounting it must not follow links that are put there later.
    """
    inside = _inside(volume, sub_path)
    real = volume.resolve()
    root = rooted.open_root(str(real))
    try:
        mode = stat.S_IMODE(os.fstat(root).st_mode)
        held = rooted.make(root, inside, mode=mode, beneath=True)
    except OSError as error:
        raise _outside(sub_path, error) from error
    finally:
        os.close(root)
    found = Path(os.readlink(rooted.path_of(held)))
    os.close(held)
    if not found.is_relative_to(real):  # it was moved meanwhile
        raise ConfigurationError(f"subPath {sub_path} leads out of its volume")
    return found


def _inside(volume: Path, path: str) -> str:
    """Return a path in a volume without its links, which may name the volume; ConfigurationError.

    What containers replace by links afterwards is noticed when it is opened.
    """
    _check_sub_path(path)
    real = os.path.realpath(volume)
    try:
        found = Path(os.path.realpath(os.path.join(real, path)))
    except OSError as error:  # a link was replaced while it was read
        raise ConfigurationError(f"subPath {path} leads out of its volume: {error}") from error
    if not found.is_relative_to(real):
        raise ConfigurationError(f"subPath {path} leads out of its volume")
    return str(found.relative_to(real))


def _outside(sub_path: str, error: OSError) -> OSError | ConfigurationError:
    """Return what to raise when a path of a volume cannot be opened."""
    if error.errno in (errno.EXDEV, errno.ELOOP):
        return ConfigurationError(f"subPath {sub_path} leads out of its volume")
    return error


def write_hosts(
    directory: Path, pod: Object, addresses: Sequence[str], cluster_domain: str
) -> Mount:
    """Write a pod's /etc/hosts; return its mounts for containers."""
    spec = pod["spec"]
    if spec.get("hostNetwork"):
        lines = [_HOST_NETWORK, Path("/etc/hosts").read_text()]
    else:
        name, behind = hostname(pod), domain(pod, cluster_domain)
        full = f"{name}.{behind}\t" if behind else ""
        lines = [_HOSTS, *(f"{each}\t{full}{name}\n" for each in addresses)]
    aliases = spec.get("hostAliases") or ()
    if aliases:
        lines.append("\n# Entries added by HostAliases.\n")
        lines += ["\t".join([each["ip"], *each.get("hostnames", ())]) + "\n" for each in aliases]
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / "etc-hosts"
    file.write_text("".join(lines))
    file.chmod(0o644)  # whatever the umask is: users in containers read it
    return Mount(str(file), "/etc/hosts")


def remove_volumes(directory: Path) -> None:
    """Remove the volumes of a pod that has ended, unmounting first; OSError."""
    _check_drivers_done(directory)
    mount_table.take_away(directory)
    remove_tree(directory / "volumes")


def remove(directory: Path) -> None:
    """Remove the directory of a pod, unmounting first; OSError."""
    _check_drivers_done(directory)
    mount_table.take_away(directory)
    remove_tree(directory)


def _check_drivers_done(directory: Path) -> None:
    """Remove nothing as long as a driver may still mount something there; OSError."""
    for folder in ("volumes", "volumeDevices"):
        path = directory / folder / _OF_DRIVERS
        if path.is_dir() and any(path.iterdir()):
            raise OSError(errno.EBUSY, "volumes of CSI drivers are still there", str(path))
