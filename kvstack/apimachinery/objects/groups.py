"""Names of groups, versions, kinds and resources, printed as in messages.

str(GroupResource("apps", "deployments"))            → deployments.apps
str(GroupKind("", "Pod"))                            → Pod
str(GroupVersionKind("apps", "v1", "Deployment"))    → apps/v1, Kind=Deployment
str(GroupVersion("", "v1"))                          → v1
"""

from typing import NamedTuple

from typing_extensions import override


class GroupResource(NamedTuple):
    """A resource of any version."""

    group: str
    resource: str

    @override
    def __str__(self) -> str:
        """Return `resource.group`, or the resource alone in the core group."""
        return f"{self.resource}.{self.group}" if self.group else self.resource


class GroupKind(NamedTuple):
    """A kind of any version."""

    group: str
    kind: str

    @override
    def __str__(self) -> str:
        """Return `Kind.group`, or the kind alone in the core group."""
        return f"{self.kind}.{self.group}" if self.group else self.kind


class GroupVersion(NamedTuple):
    """A version of a group: what `apiVersion` holds."""

    group: str
    version: str

    @override
    def __str__(self) -> str:
        """Return the `apiVersion`."""
        return f"{self.group}/{self.version}" if self.group else self.version


class GroupVersionKind(NamedTuple):
    """A kind in a version."""

    group: str
    version: str
    kind: str

    @override
    def __str__(self) -> str:
        """Return `group/version, Kind=Kind`, with the slash even in the core group."""
        return f"{self.group}/{self.version}, Kind={self.kind}"


def parse_group_version(api_version: str) -> GroupVersion:
    """Return group and version of an `apiVersion`; raises ValueError with upstream's text."""
    if api_version in {"", "/"}:
        return GroupVersion("", "")
    group, slash, version = api_version.partition("/")
    if not slash:
        return GroupVersion("", group)
    if "/" in version:
        raise ValueError(f"unexpected GroupVersion string: {api_version}")
    return GroupVersion(group, version)
