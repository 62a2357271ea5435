"""Objects that are not stored: made when they are asked for, and reviews."""

from kvstack.apimachinery.objects.json_object import Object
from kvstack.apiserver.server.components import ComponentStatuses, Health
from kvstack.apiserver.verbs.interfaces import ReviewRequest
from tests.apiserver.support.sites import Api, site
from tests.apiserver.support.virtual_time import run

STATUSES = "/api/v1/componentstatuses"
TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"


async def _well() -> Health:
    return Health("True", "ok")


async def _away() -> Health:
    return Health("False", "connection refused")


def test_component_statuses() -> None:
    """Listed, got and shown as upstream does; there is nothing to watch or write."""

    async def main() -> None:
        async with site() as api:
            api.env.sources["", "componentstatuses"] = ComponentStatuses(
                {"scheduler": _away, "etcd-0": _well}
            )
            await _story(api)

    run(main())


async def _story(api: Api) -> None:
    listed = await api.ask("GET", STATUSES)
    assert listed.json == {
        "kind": "ComponentStatusList",
        "apiVersion": "v1",
        "metadata": {},
        "items": [
            {
                "metadata": {"name": "etcd-0"},
                "conditions": [{"type": "Healthy", "status": "True", "message": "ok"}],
            },
            {
                "metadata": {"name": "scheduler"},
                "conditions": [
                    {"type": "Healthy", "status": "False", "message": "connection refused"}
                ],
            },
        ],
    }
    assert listed.header("warning") == '299 - "v1 ComponentStatus is deprecated in v1.19+"'
    got = (await api.ask("GET", f"{STATUSES}/scheduler")).json
    assert got == {"kind": "ComponentStatus", "apiVersion": "v1", **listed.json["items"][1]}
    table = (await api.ask("GET", STATUSES, accept=TABLE)).json
    assert [each["cells"] for each in table["rows"]] == [
        ["etcd-0", "Healthy", "ok", ""],
        ["scheduler", "Unhealthy", "connection refused", ""],
    ]
    one = await api.ask("GET", f"{STATUSES}?fieldSelector=metadata.name%3Detcd-0")
    assert [each["metadata"]["name"] for each in one.json["items"]] == ["etcd-0"]
    assert (await api.ask("GET", f"{STATUSES}?labelSelector=a")).json["items"] == []
    binary = await api.ask("GET", STATUSES, accept="application/vnd.kubernetes.protobuf")
    assert binary.body[:4] == b"k8s\0"
    none = await api.ask("GET", f"{STATUSES}/x")
    assert (none.status, none.json["message"]) == (404, 'componentstatus "x" not found')
    assert (await api.ask("GET", f"{STATUSES}?watch=1")).status == 405
    assert (await api.ask("POST", STATUSES, got)).status == 405


def test_what_is_acted_on_has_the_namespace_of_the_path() -> None:
    """A review that names none is of the one it is sent to; one that names another is refused."""
    path = "/apis/authorization.k8s.io/v1/namespaces/a/localsubjectaccessreviews"

    async def review(asked: ReviewRequest) -> Object:
        return {**asked.obj, "status": {"allowed": True}}

    async def main() -> None:
        async with site() as api:
            api.env.reviews["authorization.k8s.io", "localsubjectaccessreviews", ""] = review
            bare = {"apiVersion": "authorization.k8s.io/v1", "kind": "LocalSubjectAccessReview"}
            made = await api.ask("POST", path, bare)
            assert (made.status, made.json["metadata"]["namespace"]) == (201, "a")
            other = await api.ask("POST", path, {**bare, "metadata": {"namespace": "b"}})
            assert other.status == 400

    run(main())
