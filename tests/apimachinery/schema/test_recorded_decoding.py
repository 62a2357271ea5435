"""Bodies that a real kube-apiserver took or refused, decoded by ours."""

from collections.abc import Iterator
from typing import Any

import pytest

from kvstack.apimachinery.schema.decode import DecodeError, decode
from kvstack.apimachinery.schema.load import load
from kvstack.apimachinery.schema.resource import Kind
from kvstack.apimachinery.schema.types import Type
from tests.apimachinery.schema.recordings import lines

TABLE = load()

SET_BY_THE_SERVER = (
    "CertificateSigningRequest.spec.extra",
    "CertificateSigningRequest.spec.groups",
    "CertificateSigningRequest.spec.uid",
    "CertificateSigningRequest.spec.username",
    "Namespace.metadata.namespace",
    "Node.spec.taints",
    "Pod.spec.serviceAccount",
    "Pod.spec.tolerations",
)
DEFAULTED = (
    "ClusterRoleBinding.roleRef.apiGroup",
    "FlowSchema.spec.matchingPrecedence",
    "PersistentVolume.spec.capacity.storage",
    "PriorityLevelConfiguration.spec.limited.limitResponse.queuing",
    "PriorityLevelConfiguration.spec.limited.nominalConcurrencyShares",
    "Service.spec.ports[].targetPort",
    "TokenRequest.spec.audiences",
    "TokenRequest.spec.expirationSeconds",
)
CONVERTED = (
    "EndpointSlice.endpoints[].deprecatedTopology",
    "Secret.data.a",
    "Secret.stringData",
    "ServiceAccount.secrets[]",
)
"""Gone or moved in the internal version of the kind."""
BEHIND_A_GATE = (
    "Lease.spec.preferredHolder",
    "PersistentVolumeClaim.spec.dataSource",
    "Pod.spec.containers[].lifecycle.stopSignal",
    "Pod.spec.containers[].livenessProbe.grpc.mode",
    "Pod.spec.containers[].livenessProbe.httpGet.protocol",
    "Pod.spec.containers[].volumeMounts[].bindMountOptions",
    "Pod.spec.evictionResponders",
    "Pod.spec.volumes[].downwardAPI.defaultUser",
    "Pod.spec.volumes[].projected.defaultUser",
    "Pod.spec.volumes[].projected.sources[].serviceAccountToken.user",
    "Pod.spec.volumes[].secret.defaultUser",
    "ResourceSlice.spec.skipNodeOperations",
)
STORED_AS_NULL = ("ClusterRole.rules", "EndpointSlice.ports")
"""Protobuf has no empty lists: what comes back from the store has none either."""
TOLERATED = (
    *SET_BY_THE_SERVER,
    *DEFAULTED,
    *CONVERTED,
    *BEHIND_A_GATE,
    *STORED_AS_NULL,
)


def type_of(body: dict[str, Any]) -> Type:
    group, _, version = body["apiVersion"].rpartition("/")
    found = TABLE.type_of(Kind(group, version, body["kind"]))
    assert found is not None
    return found


def differences(ours: object, theirs: object, path: str) -> Iterator[str]:
    """Return the paths of what is in ours but not the same in theirs; theirs may have more."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        common = [name for name in theirs if name in ours]
        if [name for name in ours if name in theirs] != common:
            yield f"{path}: order"
        for name, value in ours.items():
            below = f"{path}.{name}"
            if name not in theirs:
                yield below
            else:
                yield from differences(value, theirs[name], below)
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for mine, yours in zip(ours, theirs, strict=True):
            yield from differences(mine, yours, f"{path}[]")
    elif ours != theirs or type(ours) is not type(theirs):
        yield path


def is_tolerated(path: str, kind: str) -> bool:
    return path.startswith((*TOLERATED, f"{kind}.status", f"{kind}.metadata.managedFields"))


def test_what_was_accepted_has_the_members_of_the_answer() -> None:
    seen = 0
    tolerated: set[str] = set()
    for line in lines("decode-accepted"):
        body = line["body"]
        found = decode(body, type_of(body)).obj
        seen += 1
        for path in differences(found, line["answer"], body["kind"]):
            assert is_tolerated(path, body["kind"]), (line["name"], path)
            tolerated.update(each for each in TOLERATED if path.startswith(each))
    assert seen == 1263
    assert tolerated == set(TOLERATED), "some differences are gone"


@pytest.mark.slow
def test_what_was_refused_is_refused_with_the_same_words() -> None:
    seen = 0
    for line in lines("decode-refused"):
        seen += 1
        try:
            unknown = decode(line["body"], type_of(line["body"])).unknown
            text = f"strict decoding error: {', '.join(unknown)}"
        except DecodeError as error:
            text = str(error)
        assert text == line["error"], line["name"]
    assert seen == 2166
